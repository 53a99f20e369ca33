#include "models/network/module_names.hpp"

#include <algorithm>
#include <set>

#include "base/join.hpp"

namespace distilld::models {
namespace {

/// Of all modules, each once.
std::set<std::string> last_parts(const std::vector<LinearModule>& modules) {
    std::set<std::string> names;
    for (const LinearModule& module : modules) {
        const std::string& name = module.linear->name();
        names.insert(name.substr(name.rfind('.') + 1));
    }
    return names;
}

}  // namespace

bool names_module(const std::string& target, const std::string& module) {
    return module == target || module.ends_with("." + target);
}

bool name_module(const std::vector<std::string>& targets, const std::string& module) {
    return std::ranges::any_of(targets, [&](const std::string& target) { return names_module(target, module); });
}

Result<std::vector<std::string>> resolve_modules(const std::vector<LinearModule>& modules,
                                                 const std::vector<std::string>& wanted, const std::string& pointer) {
    std::set<std::string> targets(wanted.begin(), wanted.end());
    for (const std::string& target : targets) {
        if (std::ranges::none_of(modules, [&](const auto& m) { return names_module(target, m.linear->name()); })) {
            return invalid_input(pointer + ": the student has no linear module \"" + target + "\"; it has " +
                                 joined(last_parts(modules)));
        }
    }
    if (targets.empty()) {
        targets = last_parts(modules);
    }
    return std::vector<std::string>(targets.begin(), targets.end());
}

}  // namespace distilld::models

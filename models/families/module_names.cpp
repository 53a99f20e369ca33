#include "models/families/module_names.hpp"

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/join.hpp"
#include "models/families/network_shape.hpp"

namespace distilld::models {
namespace {

/// The distinct last parts of the names.
std::set<std::string> last_parts(const std::vector<std::string>& modules) {
    std::set<std::string> names;
    for (const std::string& name : modules) {
        names.insert(name.substr(name.rfind('.') + 1));
    }
    return names;
}

}  // namespace

std::vector<std::string> linear_names(const ModelConfig& config) {
    const NetworkShape shape = network_shape(config);
    std::vector<std::string> names;
    for (std::uint64_t layer = 0; layer < shape.layers; ++layer) {
        for (const LinearShape& linear : shape.linears) {
            names.push_back(std::string(config.family->names.layers) + "." + std::to_string(layer) + "." + linear.name);
        }
    }
    return names;
}

bool names_module(const std::string& target, const std::string& module) {
    return module == target || module.ends_with("." + target);
}

bool name_module(const std::vector<std::string>& targets, const std::string& module) {
    return std::ranges::any_of(targets, [&](const std::string& target) { return names_module(target, module); });
}

Result<std::vector<std::string>> resolve_modules(const ModelConfig& config, const std::vector<std::string>& wanted,
                                                 const std::string& pointer) {
    const std::vector<std::string> modules = linear_names(config);
    std::set<std::string> targets(wanted.begin(), wanted.end());
    for (const std::string& target : targets) {
        if (std::ranges::none_of(modules, [&](const std::string& module) { return names_module(target, module); })) {
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

#include "models/network/ternary_modules.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "models/families/module_names.hpp"
#include "models/network/causal_lm.hpp"

namespace distilld::models {

Result<void> make_ternary(CausalLm& network, const std::vector<std::string>& wanted) {
    constexpr std::int64_t kRowsAByte = 4;
    const char* pointer = "/student/quantize_modules";
    const std::vector<LinearModule> modules = network.linear_modules();
    const Result<std::vector<std::string>> targets = resolve_modules(network.config(), wanted, pointer);
    if (!targets) {
        return targets.error();
    }
    TernaryModules made;
    for (const auto& [group, linear] : modules) {
        if (!name_module(*targets, linear->name())) {
            made.others.push_back(linear->name());
            continue;
        }
        if (linear->transposed()) {
            return invalid_input(
                "/student/quantization: is \"ternary\", but " + linear->name() +
                " has its weight as [inputs, outputs] (Conv1D), which the BitNet format does not support");
        }
        if (linear->outputs() % kRowsAByte != 0) {
            return invalid_input(std::string(pointer) + ": " + linear->name() + " has " +
                                 std::to_string(linear->outputs()) +
                                 " outputs, and an export packs four of them into a byte: leave it out");
        }
        made.ternary.push_back(linear->name());
    }
    for (const auto& [group, linear] : modules) {
        if (name_module(*targets, linear->name())) {
            linear->make_ternary();
        }
    }
    network.set_ternary_modules(std::move(made));
    return {};
}

}  // namespace distilld::models

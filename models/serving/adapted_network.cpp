#include "models/serving/adapted_network.hpp"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "models/families/adapter_config.hpp"
#include "models/network/causal_lm.hpp"
#include "models/network/decoder.hpp"
#include "models/network/lora.hpp"

namespace distilld::models {

Result<std::unique_ptr<CausalLm>> adapt_network(const CausalLm& base, const std::filesystem::path& folder) {
    Result<AdapterConfig> config = read_adapter_config(folder);
    if (!config) {
        return config.error();
    }
    LoraSpec spec;
    spec.r = static_cast<std::uint32_t>(config->r);
    spec.alpha = config->alpha;
    spec.target_modules = std::move(config->target_modules);
    std::unique_ptr<CausalLm> network = make_decoder(base.config(), base.dtype(), {base.device()});
    for (std::size_t group = 0; group < network->groups().size(); ++group) {
        // Those of an adapter of `base` come behind the model's.
        std::deque<Parameter>& own = network->groups()[group].parameters;
        std::copy_n(base.groups()[group].parameters.begin(), own.size(), own.begin());
    }
    const std::string field = (folder / kAdapterConfigFile).string() + ": target_modules";
    Result<void> made = declare_adapters(*network, spec, 0, field);
    if (made) {
        made = check_adapter_file(*network, folder);
    }
    if (made) {
        initialize_adapters(*network);
        made = read_adapters(*network, folder);
    }
    if (!made) {
        return made.error();
    }
    const torch::NoGradGuard no_grad;
    for (ParameterGroup& group : network->groups()) {
        for (Parameter& parameter : group.parameters) {
            if (parameter.trainable) {
                keep_converted(parameter, parameter.master.to(to_scalar_type(network->dtype())));
            }
        }
    }
    return network;
}

}  // namespace distilld::models

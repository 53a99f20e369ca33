#pragma once

#include <memory>

#include "models/serving/generator.hpp"

namespace distilld::models {

class CausalLm;

/// `network`: for inference, on one device; must outlive the generator. The pieces in which a prompt is read are a
/// function of its length.
[[nodiscard]] std::unique_ptr<Generator> make_generator(CausalLm& network, const GeneratorLimits& limits);

}  // namespace distilld::models

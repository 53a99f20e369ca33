#pragma once

#include <filesystem>
#include <memory>

#include "base/error.hpp"

namespace distilld::models {

class CausalLm;

/// A network for inference with the weights of `base`, whose tensors it shares, without an adapter that `base` has, and
/// with the adapter of a PEFT folder (LoRA,
/// for modules and shapes of `base`; base_model_name_or_path is not compared). Its outputs are those of the student
/// that was trained with the adapter. Errors name the file and the field or tensor; nothing is allocated before the
/// shapes are known to match.
Result<std::unique_ptr<CausalLm>> adapt_network(const CausalLm& base, const std::filesystem::path& folder);

}  // namespace distilld::models

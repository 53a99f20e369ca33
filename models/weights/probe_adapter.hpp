#pragma once

#include <filesystem>

#include "base/error.hpp"

namespace distilld::models {

/// Writes to `to` (which must exist) the LoRA adapter of the PEFT folder `from` with other weights B, none of them
/// zero, so that it changes what the model answers. The same input gives the same bytes. Errors name the file.
Result<void> write_probe_adapter(const std::filesystem::path& from, const std::filesystem::path& to);

/// The same for the model folder `from`: its matrices get their columns in reverse order.
Result<void> write_probe_model(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace distilld::models

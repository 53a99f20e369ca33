#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/store/store_export.hpp"

namespace distilld::cli {

/// A llama.cpp file to turn into a dataset and its answers.
struct StoreImport {
    std::filesystem::path file;     ///< from llama-perplexity --kl-divergence-base
    std::filesystem::path dataset;  ///< JSONL to write: one row per chunk, with loss on its second half
    std::filesystem::path to;       ///< folder of the store; an incomplete one is continued
    /// Replaces each chunk's first token, as llama.cpp does for models that ask for it; empty = none.
    std::optional<std::int32_t> bos;
    StoreExport store;  ///< its content; k 0 = 64
};

/// Writes both. An existing dataset must be the same. Errors name the file.
Result<void> import_kld_file(const StoreImport& wanted);

}  // namespace distilld::cli

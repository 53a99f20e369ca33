#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/store/store_export.hpp"

namespace distilld::cli {

/// A file of llama.cpp that becomes a dataset and the answers to it.
struct StoreImport {
    std::filesystem::path file;     ///< of llama-perplexity --kl-divergence-base
    std::filesystem::path dataset;  ///< JSONL that is written: a row a chunk, whose second half carries loss
    std::filesystem::path to;       ///< folder of the store; one that is there in part is gone on with
    /// In place of each chunk's first token, as llama.cpp put it there when the model asks for one; empty = none.
    std::optional<std::int32_t> bos;
    StoreExport store;  ///< what it is to hold; k 0 = 64
};

/// Writes both. A dataset that is there already must be the same. Errors name the file.
Result<void> import_kld_file(const StoreImport& wanted);

}  // namespace distilld::cli

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"

namespace distilld {

/// Options of an export.
struct StoreExport {
    StoreFormat format = StoreFormat::packed;
    StoreValues values = StoreValues::f16;
    std::uint32_t k = 0;         ///< 0: as in the store; 64 for a store of logits
    double p = 0.99;             ///< topp
    std::uint32_t samples = 50;  ///< sampled
    std::string generator;       ///< as in StoreManifest
};

/// Writes the readable rows of `from` as another store into the folder `to`, which may already hold a part of it.
/// Logits can be converted to every format; k entries to topk, packed and topp with at most k. Others are an error
/// (invalid_input). Returns the writer's progress.
Result<StoreProgress> export_store(StoreReader& from, const std::filesystem::path& to, const StoreExport& options);

/// Passes each stored position of the readable rows [first_row, end_row) to `write`, as a line of JSON with its
/// newline: {"row", "position", "ids", "logprobs", "tail"}, or {"row", "position", "logits"} for a store of logits. A
/// probability of 0 is null.
Result<void> write_store_lines(StoreReader& from, std::uint64_t first_row, std::uint64_t end_row,
                               const std::function<Result<void>(const std::string&)>& write);

}  // namespace distilld

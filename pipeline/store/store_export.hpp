#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"

namespace distilld {

/// What becomes of a store.
struct StoreExport {
    StoreFormat format = StoreFormat::packed;
    StoreValues values = StoreValues::f16;
    std::uint32_t k = 0;         ///< 0: as many as the store has; of one with logits 64
    double p = 0.99;             ///< topp
    std::uint32_t samples = 50;  ///< sampled
    std::string generator;       ///< as in StoreManifest
};

/// Writes the sealed rows of `from` as another store in the folder `to`, which may be there already in part. Of logits
/// every format can be made; of k entries topk, packed and topp with at most as many. An error (invalid_input) for
/// others. What the writer has at the end is returned.
Result<StoreProgress> export_store(StoreReader& from, const std::filesystem::path& to, const StoreExport& options);

/// Gives each stored position of the sealed rows [first_row, end_row) as a line of JSON (with its newline) to `write`:
/// {"row", "position", "ids", "logprobs", "tail"}, of a store of logits {"row", "position", "logits"}. A probability of
/// 0 is null.
Result<void> write_store_lines(StoreReader& from, std::uint64_t first_row, std::uint64_t end_row,
                               const std::function<Result<void>(const std::string&)>& write);

}  // namespace distilld

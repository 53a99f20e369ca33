#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/store/store_reader.hpp"

namespace distilld {

struct StoreVerification {
    std::uint64_t shards = 0;           ///< listed as sealed
    std::uint64_t rows = 0;             ///< intact rows of these shards
    std::uint64_t tokens = 0;           ///< of those rows
    std::vector<std::string> defects;   ///< sentences that name the file and, if it is one row, the row
    std::uint64_t dataset_rows = 0;     ///< rows of the dataset
    std::uint64_t unsealed_rows = 0;    ///< intact rows in files of unsealed shards
    std::vector<std::string> unsealed;  ///< those files
    std::vector<std::string> foreign;   ///< files that do not, or no longer, belong to the store
};

/// Reads the whole store: the SHA-256 of each shard, the checksum and the ids of each row. Fails for a folder without a
/// store, or if the manifest or the list cannot be read.
Result<StoreVerification> verify_store(const std::filesystem::path& folder);

/// The error of storing, in nats per token, over the whole vocabulary: a store compared with a store of logits of the
/// same data. The mass outside the stored entries is spread evenly.
struct StoreError {
    std::uint64_t tokens = 0;
    double kl_teacher_stored = 0;  ///< mean KL(teacher ‖ stored); infinite if a token has a probability but no entry
                                   ///< and no tail (sampled)
    double kl_stored_teacher = 0;  ///< mean KL(stored ‖ teacher)
};

/// Compares the rows that both have, at most `max_rows`. Fails (invalid_input) if `full` has no logits, or if the
/// datasets or vocabularies differ.
Result<StoreError> measure_error(StoreReader& stored, StoreReader& full, std::uint64_t max_rows);

}  // namespace distilld

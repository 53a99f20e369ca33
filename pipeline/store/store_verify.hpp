#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

struct StoreVerification {
    std::uint64_t shards = 0;           ///< sealed ones that the list names
    std::uint64_t rows = 0;             ///< of them that are whole
    std::uint64_t tokens = 0;           ///< of those rows
    std::vector<std::string> defects;   ///< sentences that name file and, where it is one row, the row
    std::uint64_t dataset_rows = 0;     ///< that there are to be
    std::uint64_t unsealed_rows = 0;    ///< that are whole, in files of shards that are not sealed yet
    std::vector<std::string> unsealed;  ///< those files
    std::vector<std::string> foreign;   ///< files that are not the store's, or no longer
};

/// Reads all of a store: the SHA-256 of each shard, the checksum and the ids of each row. An error for a folder without
/// a store or whose manifest or list cannot be read.
Result<StoreVerification> verify_store(const std::filesystem::path& folder);

}  // namespace distilld

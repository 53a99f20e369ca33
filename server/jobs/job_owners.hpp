#pragma once

#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "server/security/api_key.hpp"

namespace distilld {

/// Jobs and files that know their owner by the name of a key alone, as they were written up to schema 8, get the id of
/// the key of that name, if it was there before them: two keys of one name never exist at a time, so it is the one that
/// made them. The others stay administrators'. `store`: file of the job store, which has been opened before.
[[nodiscard]] Result<void> own_by_id(const std::filesystem::path& store, const std::vector<ApiKey>& keys);

}  // namespace distilld

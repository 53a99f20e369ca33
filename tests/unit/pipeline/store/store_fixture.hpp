#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/store_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::test {

/// A dataset of 7 rows of 5 positions over 40 tokens, with prompts that carry no loss and rows that end early, and a
/// teacher of it, whose logits depend on row and position alone.
class StoreData {
  public:
    static constexpr std::uint64_t kRows = 7;
    static constexpr std::uint32_t kColumns = 5;
    static constexpr std::uint32_t kVocabulary = 40;

    /// Three shards: 3, 3 and 1 rows.
    [[nodiscard]] static StoreManifest manifest(StoreFormat format, StoreValues values = StoreValues::f16);

    [[nodiscard]] static TokenBatch batch(const std::vector<std::uint64_t>& rows);
    [[nodiscard]] static std::vector<float> logits(std::uint64_t row, std::uint32_t position);

    /// f32 logits of all positions; those without loss are not given.
    [[nodiscard]] static TeacherTargets full(const TokenBatch& batch);
    /// f32 log-probabilities of the k most probable.
    [[nodiscard]] static TeacherTargets entries(const TokenBatch& batch, std::uint32_t k);

    /// What the format needs of the teacher.
    [[nodiscard]] static TeacherTargets targets(const TokenBatch& batch, StoreFormat format);

    /// Every row, in batches of `batch_size`, in this order.
    static Result<void> write(StoreWriter& writer, const std::vector<std::uint64_t>& rows, std::size_t batch_size);
    [[nodiscard]] static std::vector<std::uint64_t> all_rows();
};

/// Name and content of each shard and of the list, in order.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> shard_bytes(const std::filesystem::path& folder);

/// The arrays of targets as bytes, for comparison.
[[nodiscard]] std::vector<std::string> bytes_of(const TeacherTargets& targets);

}  // namespace distilld::test

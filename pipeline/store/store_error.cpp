#include "pipeline/store/store_error.hpp"

#include <limits>
#include <string>
#include <vector>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/store/divergence.hpp"

namespace distilld {
namespace {

std::vector<float> floats_of(const ArrayView& array, std::size_t first, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = element_as_float(array, first + i);
    }
    return values;
}

/// Of a position of a row of targets: all tokens of a store of logits are entries.
void add_position(const TeacherTargets& stored, const TeacherTargets& full, std::size_t at, StoreError& error) {
    const std::size_t width = stored.width;
    const auto logits = floats_of(full.values, at * full.width, full.width);
    const auto values = floats_of(stored.values, at * width, width);
    std::vector<std::int32_t> ids(width);
    const bool entries = stored.kind == TeacherTargets::Kind::topk;
    for (std::size_t i = 0; i < width; ++i) {
        ids[i] = static_cast<std::int32_t>(entries ? element_as_id(stored.ids, at * width + i) : i);
    }
    const float tail = entries ? element_as_float(stored.tail, at) : -std::numeric_limits<float>::infinity();
    const StoredDistribution distribution{ids, values, tail};
    error.kl_teacher_stored += kl_teacher_stored(logits, distribution);
    error.kl_stored_teacher += kl_stored_teacher(logits, distribution);
    ++error.tokens;
}

}  // namespace

Result<StoreError> measure_error(StoreReader& stored, StoreReader& full, std::uint64_t max_rows) {
    const auto refused = [&](const std::string& what) {
        return invalid_input(full.folder().string() + ": cannot be compared with " + stored.folder().string() + ": " +
                             what);
    };
    if (full.manifest().format != StoreFormat::full) {
        return refused(std::string("its format is ") + to_string(full.manifest().format) + ", full is expected");
    }
    if (full.manifest().dataset_hash != stored.manifest().dataset_hash ||
        full.manifest().vocabulary != stored.manifest().vocabulary) {
        return refused("another dataset or vocabulary");
    }
    StoreError error;
    std::uint64_t rows = 0;
    for (std::uint64_t row = 0; row < stored.manifest().rows && rows < max_rows; ++row) {
        if (!stored.has(row) || !full.has(row)) {
            continue;
        }
        ++rows;
        const auto batch = stored.batch_of({row});
        if (!batch) {
            return batch.error();
        }
        const auto ours = stored.read(*batch);
        if (!ours) {
            return ours.error();
        }
        const auto theirs = full.read(*batch);
        if (!theirs) {
            return theirs.error();
        }
        for (std::size_t t = 0; t < batch->columns; ++t) {
            if (batch->labels[t] != kIgnoredLabel) {
                add_position(*ours, *theirs, t, error);
            }
        }
    }
    if (error.tokens > 0) {
        error.kl_teacher_stored /= static_cast<double>(error.tokens);
        error.kl_stored_teacher /= static_cast<double>(error.tokens);
    }
    return error;
}

}  // namespace distilld

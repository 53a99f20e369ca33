#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// Whether the teacher gave the row of position `row` (= b · T + t).
[[nodiscard]] bool row_is_given(const TeacherTargets& targets, std::size_t row) noexcept;

/// Checks of decoded targets, of the rows that were given: ids below `vocabulary` (0 = not checked) or, of top-k rows,
/// no more than `padding` above, no NaN, log-probabilities not above zero (with room for rounding), every row of logits
/// with a finite value, hidden states finite. Empty when all is well, else what is wrong.
[[nodiscard]] std::optional<std::string> find_defect(const TeacherTargets& targets, std::uint32_t vocabulary,
                                                     std::uint64_t padding = 0);

/// A position whose label counts must have a row. Empty when all have, else what is wrong.
[[nodiscard]] std::optional<std::string> find_missing_row(const TeacherTargets& targets, const TokenBatch& tokens);

/// One value of an array of floats of any type, widened.
[[nodiscard]] float element_as_float(const ArrayView& array, std::size_t index);
/// One id of an i32 or u32 array; negative ones come out as large numbers.
[[nodiscard]] std::uint32_t element_as_id(const ArrayView& array, std::size_t index);

/// Reduces rows of logits to the k most probable ids (equal logits: the smaller id first), their log-softmax and the
/// log of the mass left over, summed over the other ids themselves so that a tiny tail is not lost to cancellation.
/// Sums are taken in double precision.
class TopKReducer {
  public:
    /// `k` is cut to `width`.
    TopKReducer(std::uint32_t rows, std::uint32_t columns, std::uint32_t width, std::uint32_t k);

    /// Adds the next row of `width` logits. False when it has a NaN, +inf, or nothing finite.
    [[nodiscard]] bool add_row(std::span<const float> logits);

    /// All rows × columns have been added.
    [[nodiscard]] TeacherTargets finish();

  private:
    struct Storage {
        std::vector<std::int32_t> ids;
        std::vector<float> logprobs;
        std::vector<float> tail;
    };
    struct Entry {
        float logit;
        std::int32_t id;
    };
    std::uint32_t rows_;
    std::uint32_t columns_;
    std::uint32_t k_;
    std::shared_ptr<Storage> storage_;
    std::vector<Entry> heap_;
    std::vector<float> others_;  ///< the logits outside the entries
};

/// Memory of one position after the reduction of `width` logits (0 = not known) to the `k` most probable.
[[nodiscard]] constexpr std::uint64_t reduced_row_bytes(std::uint32_t k, std::uint32_t width) noexcept {
    const std::uint64_t kept = width == 0 || k < width ? k : width;
    return kept * (sizeof(std::int32_t) + sizeof(float)) + sizeof(float);
}

/// The reduction of a whole array of logits. The error says which row is unusable.
[[nodiscard]] Result<TeacherTargets> reduce_logits(const TeacherTargets& logits, std::uint32_t k);

}  // namespace distilld

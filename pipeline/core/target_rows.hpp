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

/// Whether the answer has the row of position `row` (= b · T + t).
[[nodiscard]] bool row_is_given(const TeacherTargets& targets, std::size_t row) noexcept;

/// Checks decoded targets, except missing rows: ids below `vocabulary` (0 = not checked) or, in top-k rows, at most
/// `padding` above, no NaN, log-probabilities not above zero (with a margin for rounding), every row of logits with a
/// finite value, hidden states finite. Returns what is wrong; empty if nothing.
[[nodiscard]] std::optional<std::string> find_defect(const TeacherTargets& targets, std::uint32_t vocabulary,
                                                     std::uint64_t padding = 0);

/// Checks that each position with a label has a row. Returns what is wrong; empty if nothing.
[[nodiscard]] std::optional<std::string> find_missing_row(const TeacherTargets& targets, const TokenBatch& tokens);

/// One value of an array of floats of any type, widened to f32.
[[nodiscard]] float element_as_float(const ArrayView& array, std::size_t index);
/// The same for arrays of f64 too.
[[nodiscard]] double element_as_double(const ArrayView& array, std::size_t index);
/// Appends `count` elements of an array of floats from `first` on, converted to `type`, another type of floats.
void append_converted(std::vector<std::byte>& bytes, const ArrayView& array, std::size_t first, std::size_t count,
                      ElementType type);
/// One id of an i32 or u32 array; negative ids become large numbers.
[[nodiscard]] std::uint32_t element_as_id(const ArrayView& array, std::size_t index);

/// Names, shapes and types alone.
[[nodiscard]] std::vector<SampleTensor> without_values(std::vector<SampleTensor> tensors);

/// Reduces rows of logits to the k most probable ids (equal logits: the smaller id first), their log-softmax and the
/// log of the remaining mass, summed over the other ids so that a tiny tail is not lost to cancellation. Sums are taken
/// in double precision.
class TopKReducer {
  public:
    /// `k` is cut to `width`.
    TopKReducer(std::uint32_t rows, std::uint32_t columns, std::uint32_t width, std::uint32_t k);

    /// Adds the next row of `width` logits. False if it has a NaN, +inf, or nothing finite.
    [[nodiscard]] bool add_row(std::span<const float> logits);

    /// Call after all rows × columns have been added.
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

/// Memory of one position after the reduction of `width` logits (0 = unknown) to the `k` most probable.
[[nodiscard]] constexpr std::uint64_t reduced_row_bytes(std::uint32_t k, std::uint32_t width) noexcept {
    const std::uint64_t kept = width == 0 || k < width ? k : width;
    return kept * (sizeof(std::int32_t) + sizeof(float)) + sizeof(float);
}

/// Reduces a whole array of logits. The error names the unusable row.
[[nodiscard]] Result<TeacherTargets> reduce_logits(const TeacherTargets& logits, std::uint32_t k);

}  // namespace distilld

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

/// Checks of decoded targets: ids below `vocabulary` (0 = not checked), no NaN, log-probabilities not above zero (with
/// room for rounding), every row of logits with a finite value. Empty when all is well, else what is wrong.
[[nodiscard]] std::optional<std::string> find_defect(const TeacherTargets& targets, std::uint32_t vocabulary);

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
    std::vector<std::int32_t> chosen_;
};

/// The reduction of a whole array of logits. The error says which row is unusable.
[[nodiscard]] Result<TeacherTargets> reduce_logits(const TeacherTargets& logits, std::uint32_t k);

}  // namespace distilld

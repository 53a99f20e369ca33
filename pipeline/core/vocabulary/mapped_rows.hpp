#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/vocabulary/token_alignment.hpp"

namespace distilld {

/// Collects top-k rows of a teacher with another tokenizer as rows over the student's ids: one for each position of a
/// document, and none for positions that are not put().
///
/// With entries p_i and tail t, ids without an equal one of the student go to the tail, and equal ones share a place.
/// Each free place names the highest of the common ids that the row does not name, with an even share of the tail over
/// the ids that the teacher did not name: t / (V − k). So a row has as many entries as the teacher's, or as there are
/// common ids, and adds up to 1.
class MappedRows {
  public:
    /// `width` is that of the teacher's rows.
    MappedRows(const TokenAlignment& alignment, std::uint32_t width, std::size_t positions);

    /// Takes row `row` of `targets`, which has entries, for a position. Returns the probability of the entries that the
    /// student has, too.
    double put(std::size_t position, const TeacherTargets& targets, std::size_t row);

    /// [1, positions] rows. Call once.
    [[nodiscard]] TeacherTargets finish();

  private:
    struct Held {
        std::vector<std::int32_t> ids;
        std::vector<float> values;
        std::vector<float> tail;
        std::vector<std::uint8_t> mask;
    };
    struct Entry {
        std::int32_t id;
        float value;  ///< log-probability
    };

    /// The row's entries that the student has, in entries_. Returns the probability of the others.
    double take_entries(const TeacherTargets& targets, std::size_t row);
    void fill(std::size_t places, float value);

    const TokenAlignment& alignment_;
    std::uint32_t width_;
    std::shared_ptr<Held> held_;
    std::vector<Entry> entries_;        ///< of one row
    std::vector<std::int32_t> places_;  ///< [the student's id] among these entries, or kNoPartner
};

}  // namespace distilld

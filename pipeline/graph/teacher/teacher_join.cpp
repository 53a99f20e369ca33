#include "pipeline/graph/teacher/teacher_join.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/request_parts.hpp"

namespace distilld {
namespace {

using Parts = std::vector<std::optional<TeacherTargets>>;

/// Keeps what a part held and what it holds now.
struct Widened {
    std::vector<float> numbers;
    std::shared_ptr<const void> before;
};

void replace(TeacherTargets& targets, ArrayView& array, std::vector<float> numbers) {
    auto widened = std::make_shared<Widened>(Widened{std::move(numbers), std::move(targets.owner)});
    array = {ElementType::f32, std::as_bytes(std::span(widened->numbers))};
    targets.owner = std::move(widened);
}

void widen(TeacherTargets& targets, ArrayView& array) {
    if (array.type == ElementType::f32) {
        return;
    }
    std::vector<float> numbers(array.bytes.size() / element_size(array.type));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = element_as_float(array, i);
    }
    replace(targets, array, std::move(numbers));
}

/// Whether `of` differs among the parts with rows.
template <class Of>
bool differ(const Parts& parts, Of of) {
    std::optional<decltype(of(*parts.front()))> first;
    for (const auto& part : parts) {
        if (part && first.value_or(of(*part)) != of(*part)) {
            return true;
        }
        first = part ? of(*part) : first;
    }
    return false;
}

/// Converts the parts so that their arrays can be concatenated, if kinds and widths are the same.
void make_alike(Parts& parts) {
    const bool values_differ = differ(parts, [](const TeacherTargets& part) { return part.values.type; });
    const bool some_tails = differ(parts, [](const TeacherTargets& part) { return part.tail.bytes.empty(); });
    const bool tails_differ = differ(parts, [](const TeacherTargets& part) { return part.tail.type; });
    for (auto& part : parts) {
        if (!part) {
            continue;
        }
        if (values_differ) {
            widen(*part, part->values);
        }
        if (some_tails && part->tail.bytes.empty()) {
            replace(*part, part->tail, std::vector<float>(std::size_t{part->rows} * part->columns, kUnknownTail));
        } else if (some_tails || tails_differ) {
            widen(*part, part->tail);
        }
        // Ids have been checked: below 2³¹ the two types are the same.
        part->ids.type = part->ids.type == ElementType::u32 ? ElementType::i32 : part->ids.type;
    }
}

ArrayView row_of(const ArrayView& array, std::size_t row, std::size_t rows) {
    const std::size_t bytes = array.bytes.size() / rows;
    return {array.type, array.bytes.subspan(row * bytes, bytes)};
}

/// One sequence of a part.
TeacherTargets sequence_of(const TeacherTargets& targets, std::size_t row) {
    TeacherTargets one = targets;
    one.rows = 1;
    for (ArrayView* array : {&one.ids, &one.values, &one.tail, &one.loss_mask}) {
        *array = row_of(*array, row, targets.rows);
    }
    return one;
}

}  // namespace

Result<TeacherTargets> join_teachers(const PlannedBatch& planned, Parts parts) {
    const TokenBatch& tokens = *planned.tokens;
    const auto whole =
        std::ranges::find_if(parts, [&tokens](const auto& part) { return part && part->rows == tokens.rows; });
    if (whole != parts.end()) {
        return **std::move(whole);
    }
    make_alike(parts);
    std::uint64_t wire_bytes = 0;
    for (const auto& part : parts) {
        wire_bytes += part ? part->wire_bytes : 0;
    }
    std::vector<AnsweredPart> sequences;
    for (std::uint32_t row = 0; row < planned.places.size(); ++row) {
        const PartRow place = planned.places[row];
        const auto& part = parts.at(place.part);
        if (!part || place.row >= part->rows) {
            return teacher_error("sequence " + std::to_string(row) + " has no answer");
        }
        // A part is as wide as its longest sequence.
        sequences.push_back({{row, 1, 0, part->columns}, sequence_of(*part, place.row)});
    }
    Result<TeacherTargets> joined = join_targets(tokens, std::move(sequences));
    if (joined) {
        joined->wire_bytes = wire_bytes;
    }
    return joined;
}

}  // namespace distilld

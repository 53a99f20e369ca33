#include "pipeline/teacher/request_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace distilld {
namespace {

std::string text_of(const RequestPart& part) {
    return "the answer for sequences " + std::to_string(part.first_row) + " to " +
           std::to_string(part.first_row + part.rows) + ", positions " + std::to_string(part.first_column) + " to " +
           std::to_string(part.first_column + part.columns);
}

bool inside(const RequestPart& part, const TokenBatch& tokens) {
    return part.rows > 0 && part.columns > 0 && part.first_row <= tokens.rows &&
           part.rows <= tokens.rows - part.first_row && part.first_column <= tokens.columns &&
           part.columns <= tokens.columns - part.first_column;
}

/// Whether the array holds `count` elements per position.
bool fits(const ArrayView& array, std::size_t positions, std::size_t count) {
    return array.bytes.size() == positions * count * element_size(array.type);
}

std::optional<std::string> shape_defect(const AnsweredPart& answered) {
    const TeacherTargets& targets = answered.targets;
    if (targets.kind == TeacherTargets::Kind::tensors) {
        return std::nullopt;  // the codec has compared them with the request
    }
    if (targets.rows != answered.part.rows || targets.columns != answered.part.columns || targets.width == 0) {
        return "has rows for [" + std::to_string(targets.rows) + ", " + std::to_string(targets.columns) + "] positions";
    }
    const std::size_t positions = std::size_t{targets.rows} * targets.columns;
    const bool topk = targets.kind == TeacherTargets::Kind::topk;
    if (!fits(targets.values, positions, targets.width) || (topk && !fits(targets.ids, positions, targets.width))) {
        return "has arrays that do not fit its shape";
    }
    for (const ArrayView* array : {&targets.tail, &targets.loss_mask}) {
        if (!array->bytes.empty() && !fits(*array, positions, 1)) {
            return "has arrays that do not fit its shape";
        }
    }
    return std::nullopt;
}

/// Whether the arrays of both can be joined.
bool alike(const TeacherTargets& a, const TeacherTargets& b) {
    const bool ids_alike = a.kind != TeacherTargets::Kind::topk || a.ids.type == b.ids.type;
    const auto same_form = [](const SampleTensor& one, const SampleTensor& other) {
        return one.name == other.name && one.sample_shape == other.sample_shape && one.values.type == other.values.type;
    };
    return a.kind == b.kind && a.width == b.width && std::ranges::equal(a.tensors, b.tensors, same_form) &&
           a.values.type == b.values.type && ids_alike && a.tail.bytes.empty() == b.tail.bytes.empty() &&
           a.tail.type == b.tail.type;
}

/// One array of the joined targets, with `bytes_each` bytes per position. Positions without a part stay zero.
class JoinedArray {
  public:
    JoinedArray(const TokenBatch& tokens, std::size_t bytes_each)
        : columns_(tokens.columns), each_(bytes_each), bytes_(std::size_t{tokens.rows} * tokens.columns * bytes_each) {}

    void put(const RequestPart& part, std::span<const std::byte> from) {
        const std::size_t line = std::size_t{part.columns} * each_;
        for (std::size_t row = 0; row < part.rows; ++row) {
            std::memcpy(line_of(part, row), from.data() + row * line, line);
        }
    }

    void fill(const RequestPart& part, std::byte value) {
        for (std::size_t row = 0; row < part.rows; ++row) {
            std::fill_n(line_of(part, row), std::size_t{part.columns} * each_, value);
        }
    }

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

  private:
    std::byte* line_of(const RequestPart& part, std::size_t row) {
        return bytes_.data() + ((part.first_row + row) * columns_ + part.first_column) * each_;
    }

    std::size_t columns_;
    std::size_t each_;
    std::vector<std::byte> bytes_;
};

/// Marks the positions of a part as covered. False if another part already covers one.
bool cover(std::vector<bool>& covered, const TokenBatch& tokens, const RequestPart& part) {
    for (std::size_t row = part.first_row; row < std::size_t{part.first_row} + part.rows; ++row) {
        for (std::size_t i = 0; i < part.columns; ++i) {
            auto position = covered[row * tokens.columns + part.first_column + i];
            if (position) {
                return false;
            }
            position = true;
        }
    }
    return true;
}

struct JoinedArrays {
    JoinedArray ids;
    JoinedArray values;
    JoinedArray tail;
    JoinedArray mask;
};

TeacherTargets copy_together(const TokenBatch& tokens, const std::vector<AnsweredPart>& parts, bool masked) {
    const TeacherTargets& front = parts.front().targets;
    const bool topk = front.kind == TeacherTargets::Kind::topk;
    const bool tailed = !front.tail.bytes.empty();
    const auto joined = std::make_shared<JoinedArrays>(
        JoinedArrays{JoinedArray(tokens, topk ? front.width * element_size(front.ids.type) : 0),
                     JoinedArray(tokens, front.width * element_size(front.values.type)),
                     JoinedArray(tokens, tailed ? element_size(front.tail.type) : 0), JoinedArray(tokens, masked)});
    TeacherTargets targets;
    targets.kind = front.kind;
    targets.rows = tokens.rows;
    targets.columns = tokens.columns;
    targets.width = front.width;
    for (const auto& [part, source] : parts) {
        targets.vocabulary = std::max(targets.vocabulary, source.vocabulary);
        joined->values.put(part, source.values.bytes);
        if (topk) {
            joined->ids.put(part, source.ids.bytes);
        }
        if (tailed) {
            joined->tail.put(part, source.tail.bytes);
        }
        if (masked && source.loss_mask.bytes.empty()) {
            joined->mask.fill(part, std::byte{1});
        } else if (masked) {
            joined->mask.put(part, source.loss_mask.bytes);
        }
    }
    targets.ids = {front.ids.type, joined->ids.bytes()};
    targets.values = {front.values.type, joined->values.bytes()};
    targets.tail = {front.tail.type, joined->tail.bytes()};
    targets.loss_mask = {ElementType::u8, joined->mask.bytes()};
    targets.held_bytes = targets.ids.bytes.size() + targets.values.bytes.size() + targets.tail.bytes.size() +
                         targets.loss_mask.bytes.size();
    targets.owner = joined;
    return targets;
}

/// The same for outputs for samples. Each part has all of its rows, and the parts are in the order of the rows.
TeacherTargets concatenated(const TokenBatch& samples, const std::vector<AnsweredPart>& parts) {
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::tensors;
    targets.rows = samples.rows;
    targets.columns = samples.columns;
    auto arrays = std::make_shared<std::vector<std::vector<std::byte>>>();
    for (std::size_t i = 0; i < parts.front().targets.tensors.size(); ++i) {
        std::vector<std::byte>& bytes = arrays->emplace_back();
        for (const AnsweredPart& part : parts) {
            const auto more = part.targets.tensors[i].values.bytes;
            bytes.insert(bytes.end(), more.begin(), more.end());
        }
        targets.held_bytes += bytes.size();
    }
    targets.tensors = parts.front().targets.tensors;
    for (std::size_t i = 0; i < targets.tensors.size(); ++i) {
        targets.tensors[i].values.bytes = (*arrays)[i];
    }
    targets.owner = std::move(arrays);
    return targets;
}

}  // namespace

RequestPart whole_batch(const TokenBatch& tokens) noexcept {
    return {0, tokens.rows, 0, tokens.columns};
}

Result<std::vector<RequestPart>> split_rows(const TokenBatch& tokens, const RequestLimits& limits) {
    std::uint64_t each = tokens.rows;
    if (limits.max_rows != 0) {
        each = std::min(each, limits.max_rows);
    }
    if (limits.max_tokens != 0 && tokens.columns != 0) {
        each = std::min<std::uint64_t>(each, limits.max_tokens / tokens.columns);
        if (each == 0 && tokens.rows != 0) {
            return invalid_input("/dataset/sequence_length: a sequence has " + std::to_string(tokens.columns) +
                                 " positions, the teacher takes " + std::to_string(limits.max_tokens) +
                                 " in a request");
        }
    }
    std::vector<RequestPart> parts;
    for (std::uint64_t row = 0; row < tokens.rows; row += each) {
        const auto rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(each, tokens.rows - row));
        parts.push_back({static_cast<std::uint32_t>(row), rows, 0, tokens.columns});
    }
    return parts;
}

std::vector<std::int32_t> input_ids_of(const TokenBatch& tokens, const RequestPart& part) {
    if (part == whole_batch(tokens)) {
        return tokens.input_ids;
    }
    std::vector<std::int32_t> ids;
    ids.reserve(std::size_t{part.rows} * part.columns);
    for (std::size_t row = 0; row < part.rows; ++row) {
        const std::size_t first = (part.first_row + row) * tokens.columns + part.first_column;
        const auto from = tokens.input_ids.begin() + static_cast<std::ptrdiff_t>(first);
        ids.insert(ids.end(), from, from + part.columns);
    }
    return ids;
}

std::vector<std::int32_t> lengths_of(const TokenBatch& tokens, const RequestPart& part) {
    std::vector<std::int32_t> lengths;
    for (std::size_t row = 0; row < part.rows; ++row) {
        const std::int64_t left = std::int64_t{tokens.lengths[part.first_row + row]} - part.first_column;
        lengths.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(left, 0, part.columns)));
    }
    return lengths;
}

Result<TeacherTargets> join_targets(const TokenBatch& tokens, std::vector<AnsweredPart> parts) {
    if (parts.empty()) {
        return teacher_error("no request was made for the micro-batch");
    }
    const bool whole = parts.size() == 1 && parts.front().part == whole_batch(tokens);
    std::vector<bool> covered(whole ? 0 : std::size_t{tokens.rows} * tokens.columns);
    bool masked = false;
    for (const AnsweredPart& answered : parts) {
        if (!inside(answered.part, tokens)) {
            return teacher_error(text_of(answered.part) + " lies outside the micro-batch of [" +
                                 std::to_string(tokens.rows) + ", " + std::to_string(tokens.columns) + "] positions");
        }
        if (const auto defect = shape_defect(answered)) {
            return teacher_error(text_of(answered.part) + " " + *defect);
        }
        if (!alike(answered.targets, parts.front().targets)) {
            return teacher_error(text_of(answered.part) + " is of another kind, width or type than the first");
        }
        if (!whole && !cover(covered, tokens, answered.part)) {
            return teacher_error(text_of(answered.part) + " overlaps another");
        }
        masked = masked || !answered.targets.loss_mask.bytes.empty();
    }
    if (whole) {
        return std::move(parts.front().targets);
    }
    if (parts.front().targets.kind == TeacherTargets::Kind::tensors) {
        return concatenated(tokens, parts);
    }
    masked = masked || std::find(covered.begin(), covered.end(), false) != covered.end();
    return copy_together(tokens, parts, masked);
}

}  // namespace distilld

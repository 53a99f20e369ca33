#include "pipeline/core/target_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half_float.hpp"
#include "pipeline/core/softmax_sums.hpp"

namespace distilld {
namespace {

/// fp16 rounding and a low-precision softmax may lift the log-probability of a certain token slightly above 0.
constexpr float kMaxLogProbability = 0.01F;
/// Logits per block that is searched for one of the best k.
constexpr std::size_t kBlock = 64;

template <class T>
T load(std::span<const std::byte> bytes, std::size_t index) {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return value;
}

/// Calls `visit(index, float)` for each element; stops when it returns false.
template <class Visit>
void for_each_float(const ArrayView& array, Visit visit) {
    const std::size_t count = array.bytes.size() / element_size(array.type);
    const auto run = [&](auto convert) {
        for (std::size_t i = 0; i < count; ++i) {
            if (!visit(i, convert(i))) {
                return;
            }
        }
    };
    if (array.type == ElementType::f32) {
        run([&](std::size_t i) { return load<float>(array.bytes, i); });
    } else if (array.type == ElementType::f16) {
        run([&](std::size_t i) { return half_to_float(load<std::uint16_t>(array.bytes, i)); });
    } else {
        run([&](std::size_t i) { return bfloat16_to_float(load<std::uint16_t>(array.bytes, i)); });
    }
}

// First, loops over one type without branches, which the compiler vectorizes, check whether everything is right. Only
// if not, the rows are checked one by one for what is wrong, and for whether the teacher gave them at all.

/// Whether `right(bits)` holds for each of `count` elements of type T from element `first` on.
template <class T, class Right>
bool all_right(std::span<const std::byte> bytes, std::size_t first, std::size_t count, Right right) {
    bool wrong = false;
    for (std::size_t i = first; i < first + count; ++i) {
        wrong |= !right(load<T>(bytes, i));
    }
    return !wrong;
}

/// The bits of the largest 16-bit float of this format up to `bound`, which is positive.
template <class ToBits, class ToFloat>
std::uint16_t floor_bits(float bound, ToBits to_bits, ToFloat to_float) {
    const std::uint16_t bits = to_bits(bound);
    return static_cast<std::uint16_t>(to_float(bits) > bound ? bits - 1 : bits);
}

constexpr std::uint16_t kSign16 = 0x8000;
constexpr std::uint16_t kInfiniteHalf = 0x7C00;
constexpr std::uint16_t kInfiniteBfloat16 = 0x7F80;

/// Whether there is no NaN, and nothing above kMaxLogProbability.
bool all_log_probabilities(const ArrayView& array) {
    const std::size_t count = array.bytes.size() / element_size(array.type);
    if (array.type == ElementType::f32) {
        return all_right<float>(array.bytes, 0, count, [](float value) { return value <= kMaxLogProbability; });
    }
    const bool half = array.type == ElementType::f16;
    const std::uint16_t max = half ? floor_bits(kMaxLogProbability, float_to_half, half_to_float)
                                   : floor_bits(kMaxLogProbability, float_to_bfloat16, bfloat16_to_float);
    // Less the sign bit, −0 to −inf are 0 to `infinite`.
    const auto infinite = static_cast<std::uint16_t>(half ? kInfiniteHalf : kInfiniteBfloat16);
    return all_right<std::uint16_t>(array.bytes, 0, count, [max, infinite](std::uint16_t bits) {
        return bits <= max || static_cast<std::uint16_t>(bits - kSign16) <= infinite;
    });
}

/// Whether no value is unusable and each row has a finite one.
template <class T, class Unusable, class Finite>
bool all_rows_of_logits(const TeacherTargets& targets, Unusable unusable, Finite finite) {
    const std::size_t rows = std::size_t{targets.rows} * targets.columns;
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t first = row * targets.width;
        bool any_finite = false;
        bool any_unusable = false;
        for (std::size_t i = first; i < first + targets.width; ++i) {
            const T value = load<T>(targets.values.bytes, i);
            any_finite |= finite(value);
            any_unusable |= unusable(value);
        }
        if (any_unusable || !any_finite) {
            return false;
        }
    }
    return true;
}

bool all_logits(const TeacherTargets& targets) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (targets.values.type == ElementType::f32) {
        return all_rows_of_logits<float>(
            targets, [](float value) { return !(value < kInfinity); }, [](float value) { return value > -kInfinity; });
    }
    const std::uint16_t infinite = targets.values.type == ElementType::f16 ? kInfiniteHalf : kInfiniteBfloat16;
    return all_rows_of_logits<std::uint16_t>(
        targets, [infinite](std::uint16_t bits) { return bits == infinite || (bits & ~kSign16 & 0xFFFF) > infinite; },
        [infinite](std::uint16_t bits) { return (bits & infinite) != infinite; });
}

bool all_finite(const ArrayView& array) {
    const std::size_t count = array.bytes.size() / element_size(array.type);
    if (array.type == ElementType::f32) {
        return all_right<float>(array.bytes, 0, count,
                                [](float value) { return std::fabs(value) <= std::numeric_limits<float>::max(); });
    }
    const std::uint16_t infinite = array.type == ElementType::f16 ? kInfiniteHalf : kInfiniteBfloat16;
    return all_right<std::uint16_t>(array.bytes, 0, count,
                                    [infinite](std::uint16_t bits) { return (bits & infinite) != infinite; });
}

std::string position_text(std::size_t row, std::uint32_t columns) {
    return "sequence " + std::to_string(row / columns) + ", position " + std::to_string(row % columns);
}

std::optional<std::string> id_defect(const TeacherTargets& targets, std::uint32_t vocabulary, std::uint64_t padding) {
    const std::size_t count = targets.ids.bytes.size() / sizeof(std::uint32_t);
    // A negative i32 is a large u32.
    constexpr std::uint64_t kNegative = 0x80000000U;
    const auto bound =
        static_cast<std::uint32_t>(vocabulary == 0 ? kNegative : std::min(vocabulary + padding, kNegative));
    if (all_right<std::uint32_t>(targets.ids.bytes, 0, count, [bound](std::uint32_t id) { return id < bound; })) {
        return std::nullopt;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const auto id = load<std::uint32_t>(targets.ids.bytes, i);
        if (id >= bound && row_is_given(targets, i / targets.width)) {
            return "token id " + std::to_string(id) + " is outside the student's vocabulary of " +
                   std::to_string(vocabulary) + (padding > 0 ? ", by more than padding" : "");
        }
    }
    return std::nullopt;
}

/// `width` elements per row.
std::optional<std::string> log_probability_defect(const TeacherTargets& targets, const ArrayView& array,
                                                  std::size_t width, const char* what) {
    if (all_log_probabilities(array)) {
        return std::nullopt;
    }
    std::optional<std::string> defect;
    for_each_float(array, [&](std::size_t index, float value) {
        // The comparison is false for a NaN as well. -inf is a probability of zero.
        if (value <= kMaxLogProbability || !row_is_given(targets, index / width)) {
            return true;
        }
        defect = std::string(what) + " " + std::to_string(index) + " is " + std::to_string(value) +
                 ", which is not a log-probability";
        return false;
    });
    return defect;
}

std::optional<std::string> logit_defect(const TeacherTargets& targets, std::uint32_t vocabulary) {
    if (vocabulary != 0 && targets.width != vocabulary) {
        return "the teacher's rows have " + std::to_string(targets.width) + " logits, not " +
               std::to_string(vocabulary) + " as expected";
    }
    if (all_logits(targets)) {
        return std::nullopt;
    }
    std::optional<std::string> defect;
    bool finite = false;
    for_each_float(targets.values, [&](std::size_t index, float value) {
        const std::size_t row = index / targets.width;
        const std::size_t column = index % targets.width;
        finite = (column == 0 ? false : finite) || std::isfinite(value);
        const bool unusable = std::isnan(value) || value == std::numeric_limits<float>::infinity();
        const bool nothing_finite = column + 1 == targets.width && !finite;
        if ((!unusable && !nothing_finite) || !row_is_given(targets, row)) {
            return true;
        }
        const std::string where = position_text(row, targets.columns);
        defect = unusable
                     ? where + ": logit " + std::to_string(column) + " is " + (std::isnan(value) ? "NaN" : "infinite")
                     : where + ": no logit is finite";
        return false;
    });
    return defect;
}

std::optional<std::string> hidden_state_defect(const TeacherTargets& targets) {
    if (all_finite(targets.values)) {
        return std::nullopt;
    }
    std::optional<std::string> defect;
    for_each_float(targets.values, [&](std::size_t index, float value) {
        if (std::isfinite(value) || !row_is_given(targets, index / targets.width)) {
            return true;
        }
        defect = position_text(index / targets.width, targets.columns) + ": element " +
                 std::to_string(index % targets.width) + " of the hidden state is not finite";
        return false;
    });
    return defect;
}

template <class Bits>
bool all_finite(std::span<const std::byte> bytes, Bits exponent) {
    for (std::size_t i = 0; i < bytes.size() / sizeof(Bits); ++i) {
        if ((load<Bits>(bytes, i) & exponent) == exponent) {
            return false;
        }
    }
    return true;
}

bool is_finite(const ArrayView& array) {
    switch (array.type) {
        case ElementType::f16:
            return all_finite(array.bytes, kInfiniteHalf);
        case ElementType::bf16:
            return all_finite(array.bytes, kInfiniteBfloat16);
        case ElementType::f32:
            return all_finite(array.bytes, std::uint32_t{0x7F800000});
        case ElementType::f64:
            return all_finite(array.bytes, std::uint64_t{0x7FF0000000000000});
        default:
            return true;
    }
}

std::optional<std::string> tensor_defect(const TeacherTargets& targets) {
    for (const SampleTensor& tensor : targets.tensors) {
        if (!is_finite(tensor.values)) {
            return "the output \"" + tensor.name + "\" has a value that is not finite";
        }
    }
    return std::nullopt;
}

}  // namespace

float element_as_float(const ArrayView& array, std::size_t index) {
    switch (array.type) {
        case ElementType::f16:
            return half_to_float(load<std::uint16_t>(array.bytes, index));
        case ElementType::bf16:
            return bfloat16_to_float(load<std::uint16_t>(array.bytes, index));
        default:
            return load<float>(array.bytes, index);
    }
}

double element_as_double(const ArrayView& array, std::size_t index) {
    return array.type == ElementType::f64 ? load<double>(array.bytes, index) : element_as_float(array, index);
}

void append_converted(std::vector<std::byte>& bytes, const ArrayView& array, std::size_t first, std::size_t count,
                      ElementType type) {
    const auto append = [&bytes](auto value) {
        const auto raw = std::as_bytes(std::span(&value, 1));
        bytes.insert(bytes.end(), raw.begin(), raw.end());
    };
    for (std::size_t i = first; i < first + count; ++i) {
        const double value = element_as_double(array, i);
        if (type == ElementType::f64) {
            append(value);
        } else if (type == ElementType::f32) {
            append(static_cast<float>(value));
        } else {
            const auto narrow = static_cast<float>(value);
            append(type == ElementType::f16 ? float_to_half(narrow) : float_to_bfloat16(narrow));
        }
    }
}

std::uint32_t element_as_id(const ArrayView& array, std::size_t index) {
    return load<std::uint32_t>(array.bytes, index);
}

bool row_is_given(const TeacherTargets& targets, std::size_t row) noexcept {
    return targets.loss_mask.bytes.empty() || targets.loss_mask.bytes[row] != std::byte{0};
}

std::optional<std::string> find_defect(const TeacherTargets& targets, std::uint32_t vocabulary, std::uint64_t padding) {
    switch (targets.kind) {
        case TeacherTargets::Kind::topk:
            if (auto defect = id_defect(targets, vocabulary, padding)) {
                return defect;
            }
            if (auto defect = log_probability_defect(targets, targets.values, targets.width, "log-probability")) {
                return defect;
            }
            return log_probability_defect(targets, targets.tail, 1, "tail log-probability");
        case TeacherTargets::Kind::logits:
            return logit_defect(targets, vocabulary);
        case TeacherTargets::Kind::hidden_states:
            return hidden_state_defect(targets);
        case TeacherTargets::Kind::tensors:
            return tensor_defect(targets);
    }
    return "unknown kind of targets";
}

std::optional<std::string> find_missing_row(const TeacherTargets& targets, const TokenBatch& tokens) {
    for (std::size_t row = 0; row < targets.loss_mask.bytes.size(); ++row) {
        if (!row_is_given(targets, row) && tokens.labels[row] != kIgnoredLabel) {
            return position_text(row, targets.columns) + ": the teacher sent no row for a position that carries a loss";
        }
    }
    return std::nullopt;
}

std::vector<SampleTensor> without_values(std::vector<SampleTensor> tensors) {
    for (SampleTensor& tensor : tensors) {
        tensor.values.bytes = {};
    }
    return tensors;
}

TopKReducer::TopKReducer(std::uint32_t rows, std::uint32_t columns, std::uint32_t width, std::uint32_t k)
    : rows_(rows), columns_(columns), k_(std::min(k, width)), storage_(std::make_shared<Storage>()) {
    const std::size_t positions = std::size_t{rows} * columns;
    storage_->ids.reserve(positions * k_);
    storage_->logprobs.reserve(positions * k_);
    storage_->tail.reserve(positions);
    heap_.reserve(k_);
}

bool TopKReducer::add_row(std::span<const float> logits) {
    // Better: the larger logit, then the smaller id. The heap keeps the worst of the best k at its front.
    const auto better = [](const Entry& a, const Entry& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    };
    bool usable = true;
    for (const float logit : logits) {
        usable &= logit < std::numeric_limits<float>::infinity();
    }
    if (!usable) {
        return false;
    }
    heap_.clear();
    float max_logit = -std::numeric_limits<float>::infinity();
    // In a large vocabulary, nearly every block has nothing better than the best k so far.
    for (std::size_t first = 0; first < logits.size(); first += kBlock) {
        const auto block = logits.subspan(first, std::min(kBlock, logits.size() - first));
        const float best = largest(block);
        max_logit = std::max(max_logit, best);
        if (heap_.size() == k_ && !(best > heap_.front().logit)) {
            continue;
        }
        for (std::size_t i = 0; i < block.size(); ++i) {
            const Entry entry{block[i], static_cast<std::int32_t>(first + i)};
            if (heap_.size() < k_) {
                heap_.push_back(entry);
                std::push_heap(heap_.begin(), heap_.end(), better);
            } else if (entry.logit > heap_.front().logit) {
                std::pop_heap(heap_.begin(), heap_.end(), better);
                heap_.back() = entry;
                std::push_heap(heap_.begin(), heap_.end(), better);
            }
        }
    }
    if (!std::isfinite(max_logit)) {
        return false;
    }
    std::sort(heap_.begin(), heap_.end(), better);
    double inside = 0;
    for (const Entry& entry : heap_) {
        inside += std::exp(static_cast<double>(entry.logit) - max_logit);
    }
    // Sums only the others: if the tail is small, the difference of the sums would be rounding.
    others_.assign(logits.begin(), logits.end());
    for (const Entry& entry : heap_) {
        others_[static_cast<std::size_t>(entry.id)] = -std::numeric_limits<float>::infinity();
    }
    const double outside = sum_of_masses(others_, max_logit);
    const double log_total = std::log(inside + outside);
    for (const Entry& entry : heap_) {
        storage_->ids.push_back(entry.id);
        storage_->logprobs.push_back(static_cast<float>(static_cast<double>(entry.logit) - max_logit - log_total));
    }
    storage_->tail.push_back(static_cast<float>(std::log(outside) - log_total));
    return true;
}

TeacherTargets TopKReducer::finish() {
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::topk;
    targets.rows = rows_;
    targets.columns = columns_;
    targets.width = k_;
    targets.ids = ArrayView{ElementType::i32, std::as_bytes(std::span(storage_->ids))};
    targets.values = ArrayView{ElementType::f32, std::as_bytes(std::span(storage_->logprobs))};
    targets.tail = ArrayView{ElementType::f32, std::as_bytes(std::span(storage_->tail))};
    targets.held_bytes = (storage_->ids.capacity() + storage_->logprobs.capacity() + storage_->tail.capacity()) * 4;
    targets.owner = storage_;
    return targets;
}

Result<TeacherTargets> reduce_logits(const TeacherTargets& logits, std::uint32_t k) {
    TopKReducer reducer(logits.rows, logits.columns, logits.width, k);
    std::vector<float> row(logits.width);
    const std::size_t row_bytes = std::size_t{logits.width} * element_size(logits.values.type);
    const std::size_t positions = std::size_t{logits.rows} * logits.columns;
    for (std::size_t r = 0; r < positions; ++r) {
        const ArrayView source{logits.values.type, logits.values.bytes.subspan(r * row_bytes, row_bytes)};
        const bool given = row_is_given(logits, r);
        for_each_float(source, [&](std::size_t index, float value) {
            row[index] = given ? value : 0.0F;
            return true;
        });
        if (!reducer.add_row(row)) {
            return teacher_error(position_text(r, logits.columns) +
                                 ": the logits hold a NaN, an infinity or nothing finite");
        }
    }
    TeacherTargets targets = reducer.finish();
    if (!logits.loss_mask.bytes.empty()) {
        struct Masked {
            std::shared_ptr<const void> rows;
            std::vector<std::byte> mask;
        };
        auto held = std::make_shared<Masked>();
        held->rows = targets.owner;
        held->mask.assign(logits.loss_mask.bytes.begin(), logits.loss_mask.bytes.end());
        targets.loss_mask = {ElementType::u8, held->mask};
        targets.held_bytes += held->mask.size();
        targets.owner = std::move(held);
    }
    return targets;
}

}  // namespace distilld

#include "pipeline/store/formats/row_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/store/divergence.hpp"
#include "pipeline/store/formats/position_format.hpp"
#include "pipeline/store/formats/tensor_format.hpp"

namespace distilld {
namespace {

/// The divergence of one in this many tokens is measured: that costs about as much as reducing its logits.
constexpr std::size_t kMeasuredEach = 8;
constexpr float kMaxLogProbability = 0.01F;  // 0 plus rounding

constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

bool is_marked(std::span<const std::byte> mask, std::size_t position) {
    return position / 8 < mask.size() && (static_cast<unsigned>(mask[position / 8]) >> (position % 8) & 1U) != 0;
}

std::vector<std::uint32_t> marked_positions(std::span<const std::byte> mask) {
    std::vector<std::uint32_t> positions;
    for (std::size_t position = 0; position < mask.size() * 8; ++position) {
        if (is_marked(mask, position)) {
            positions.push_back(static_cast<std::uint32_t>(position));
        }
    }
    return positions;
}

// No calls or branches, so that the compiler vectorizes it.
inline float widen_half(std::uint16_t bits) {
    const std::uint32_t magnitude = (bits & 0x7FFFU) << 13U;
    // Rescales the exponent; exact for subnormal numbers, too.
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
    const std::uint32_t infinite = (bits & 0x7C00U) == 0x7C00U ? 0x7F800000U : 0U;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | infinite | ((bits & 0x8000U) << 16U));
}

inline float widen_bfloat16(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

template <float Convert(std::uint16_t)>
void widen_with(std::span<const std::byte> bytes, std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = Convert(load_value<std::uint16_t>(bytes, i));
    }
}

/// Widens the logits of a position to floats. Returns why they are unusable (a NaN, +inf, nothing finite), or empty.
std::optional<std::string> widen(const ArrayView& raw, std::vector<float>& values) {
    values.resize(raw.bytes.size() / element_size(raw.type));
    if (raw.type == ElementType::f32) {
        std::memcpy(values.data(), raw.bytes.data(), raw.bytes.size());
    } else if (raw.type == ElementType::f16) {
        widen_with<widen_half>(raw.bytes, values);
    } else {
        widen_with<widen_bfloat16>(raw.bytes, values);
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    unsigned unusable = 0;
    unsigned finite = 0;
    for (const float value : values) {
        unusable |= static_cast<unsigned>(!(value < kInfinity));
        finite |= static_cast<unsigned>(value > -kInfinity);
    }
    if (unusable != 0) {
        const auto found = std::ranges::find_if(values, [](float value) { return !(value < kInfinity); });
        return "logit " + std::to_string(found - values.begin()) + " is not a number";
    }
    return finite != 0 ? std::nullopt : std::optional<std::string>("no logit is finite");
}

/// The entries of one position, and buffers for its logits.
struct Scratch {
    std::vector<float> logits;
    std::vector<std::int32_t> ids;
    std::vector<float> values;
};

/// Sorts by descending probability; nearly all entries arrive sorted.
void sort_entries(Scratch& scratch) {
    if (std::ranges::is_sorted(scratch.values, std::ranges::greater{})) {
        return;
    }
    std::vector<std::size_t> order(scratch.values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
        return scratch.values[a] != scratch.values[b] ? scratch.values[a] > scratch.values[b] : a < b;
    });
    const std::vector<std::int32_t> ids = scratch.ids;
    const std::vector<float> values = scratch.values;
    for (std::size_t i = 0; i < order.size(); ++i) {
        scratch.ids[i] = ids[order[i]];
        scratch.values[i] = values[order[i]];
    }
}

/// Writes one byte per position: 1 if it is stored. A defect is a position with a loss that is not stored, or a stored
/// position outside the batch.
std::optional<std::string> mark_stored(const TokenBatch& batch, std::size_t b, std::span<const std::byte> bits,
                                       std::byte* mask) {
    for (std::size_t t = 0; t < batch.columns; ++t) {
        mask[t] = static_cast<std::byte>(static_cast<unsigned>(bits[t / 8]) >> (t % 8) & 1U);
    }
    for (std::size_t t = batch.columns; t < bits.size() * 8; ++t) {
        if (is_marked(bits, t)) {
            return "position " + std::to_string(t) + " is stored, the batch has " + std::to_string(batch.columns) +
                   " columns";
        }
    }
    const std::int32_t* const labels = batch.labels.data() + b * batch.columns;
    unsigned missing = 0;
    for (std::size_t t = 0; t < batch.columns; ++t) {
        missing |= static_cast<unsigned>(labels[t] != kIgnoredLabel) & (static_cast<unsigned>(mask[t]) ^ 1U);
    }
    for (std::size_t t = 0; missing != 0 && t < batch.columns; ++t) {
        if (labels[t] != kIgnoredLabel && mask[t] == std::byte{0}) {
            return "position " + std::to_string(t) +
                   " carries a loss and is not stored: the store is of another dataset";
        }
    }
    return std::nullopt;
}

void find_runs(std::span<const std::byte> mask, std::vector<TokenRun>& runs) {
    runs.clear();
    std::uint32_t token = 0;
    for (auto begin = std::ranges::find(mask, std::byte{1}); begin != mask.end();) {
        const auto end = std::find(begin, mask.end(), std::byte{0});
        const auto count = static_cast<std::uint32_t>(end - begin);
        runs.push_back({token, static_cast<std::uint32_t>(begin - mask.begin()), count});
        token += count;
        begin = std::find(end, mask.end(), std::byte{1});
    }
}

/// Zeroes the positions between the runs.
void clear_others(std::uint32_t columns, std::span<const TokenRun> runs, const TargetArrays& target, std::size_t width,
                  std::size_t value_bytes) {
    std::size_t begin = 0;
    const auto clear_to = [&](std::size_t end) {
        std::memset(target.values + begin * value_bytes, 0, (end - begin) * value_bytes);
        if (target.ids != nullptr) {
            std::memset(target.ids + begin * width, 0, (end - begin) * width * sizeof(std::int32_t));
            std::memset(target.tail + begin, 0, (end - begin) * sizeof(float));
        }
    };
    for (const TokenRun& run : runs) {
        clear_to(run.position);
        begin = std::size_t{run.position} + run.count;
    }
    clear_to(columns);
}

/// Makes rows of one micro-batch.
class RowEncoder {
  public:
    RowEncoder(const StoreManifest& manifest, const PositionFormat& format) : manifest_(manifest), format_(format) {}

    /// Returns why these targets cannot be stored at all.
    std::optional<std::string> refusal(const TokenBatch& batch, const TeacherTargets& targets) const {
        if (batch.row_ids.size() != batch.rows) {
            return "the batch does not say which rows of the dataset it has";
        }
        if (targets.rows != batch.rows || targets.columns != batch.columns ||
            batch.columns > manifest_.sequence_length) {
            return "the targets are [" + std::to_string(targets.rows) + ", " + std::to_string(targets.columns) +
                   "], the batch is [" + std::to_string(batch.rows) + ", " + std::to_string(batch.columns) +
                   "], rows have " + std::to_string(manifest_.sequence_length) + " positions at most";
        }
        switch (targets.kind) {
            case TeacherTargets::Kind::hidden_states:
                return "hidden states cannot be stored, only logits or entries made of them";
            case TeacherTargets::Kind::tensors:
                return "tensors cannot be stored in format " + std::string(to_string(manifest_.format));
            case TeacherTargets::Kind::logits:
                if (targets.width != manifest_.vocabulary) {
                    return "the teacher's rows have " + std::to_string(targets.width) +
                           " logits, the store's vocabulary has " + std::to_string(manifest_.vocabulary) + " ids";
                }
                return std::nullopt;
            case TeacherTargets::Kind::topk:
                if (format_.needs() == PositionFormat::Needs::logits) {
                    return std::string("format ") + to_string(manifest_.format) +
                           " needs the teacher's logits, it gives the " + std::to_string(targets.width) +
                           " most probable tokens";
                }
                if (targets.width < format_.width()) {
                    return "the teacher gives " + std::to_string(targets.width) +
                           " entries per position, the store has " + std::to_string(format_.width());
                }
                return std::nullopt;
        }
        return "unknown kind of targets";
    }

    Result<StoredRow> encode_row(const TokenBatch& batch, const TeacherTargets& targets, std::size_t b) {
        const auto failure = [&](std::size_t t, const std::string& what) {
            return invalid_input("row " + std::to_string(batch.row_ids[b]) + ", position " + std::to_string(t) + ": " +
                                 what);
        };
        StoredRow row;
        row.row = batch.row_ids[b];
        row.mask.resize((manifest_.sequence_length + std::size_t{7}) / 8);
        row.streams.resize(format_.streams().size());
        if (row.row >= manifest_.rows) {
            return invalid_input("row " + std::to_string(row.row) + " is outside the dataset of " +
                                 std::to_string(manifest_.rows));
        }
        for (std::size_t t = 0; t < batch.columns; ++t) {
            const std::size_t at = b * batch.columns + t;
            if (batch.labels[at] == kIgnoredLabel) {
                continue;
            }
            if (!row_is_given(targets, at)) {
                return failure(t, "the teacher sent nothing for a position that carries a loss");
            }
            PositionTargets position;
            position.row = row.row;
            position.position = static_cast<std::uint32_t>(t);
            const bool logits = targets.kind == TeacherTargets::Kind::logits;
            const auto defect = logits ? read_logits(targets, at, position) : read_entries(targets, at, position);
            if (defect) {
                return failure(t, *defect);
            }
            format_.encode(position, row);
            row.mask[t / 8] |= static_cast<std::byte>(1U << (t % 8));
            if (logits && row.tokens % kMeasuredEach == 0) {
                measure(position, row);
            }
            ++row.tokens;
        }
        return row;
    }

  private:
    std::optional<std::string> read_logits(const TeacherTargets& targets, std::size_t at, PositionTargets& position) {
        const std::size_t bytes = targets.width * element_size(targets.values.type);
        position.raw = {targets.values.type, targets.values.bytes.subspan(at * bytes, bytes)};
        if (auto defect = widen(position.raw, scratch_.logits)) {
            return defect;
        }
        position.logits = scratch_.logits;
        if (format_.needs() == PositionFormat::Needs::entries) {
            TopKReducer reducer(1, 1, targets.width, format_.width());
            if (!reducer.add_row(scratch_.logits)) {
                return "the logits cannot be reduced";
            }
            const TeacherTargets reduced = reducer.finish();
            return read_entries(reduced, 0, position);
        }
        return std::nullopt;
    }

    /// Keeps the k most probable entries and adds the others to the tail.
    std::optional<std::string> read_entries(const TeacherTargets& targets, std::size_t at, PositionTargets& position) {
        const std::size_t width = targets.width;
        scratch_.ids.resize(width);
        scratch_.values.resize(width);
        double known = 0;
        for (std::size_t i = 0; i < width; ++i) {
            const std::uint32_t id = element_as_id(targets.ids, at * width + i);
            if (id >= manifest_.vocabulary) {
                return "token id " + std::to_string(id) + " is outside the vocabulary of " +
                       std::to_string(manifest_.vocabulary);
            }
            const float value = element_as_float(targets.values, at * width + i);
            if (!(value <= kMaxLogProbability)) {
                return "log-probability " + std::to_string(i) + " is " + std::to_string(value);
            }
            scratch_.ids[i] = static_cast<std::int32_t>(id);
            scratch_.values[i] = value;
            known += std::exp(static_cast<double>(value));
        }
        sort_entries(scratch_);
        float tail = 0;
        if (!targets.tail.bytes.empty()) {
            tail = element_as_float(targets.tail, at);
            if (!(tail <= kMaxLogProbability)) {
                return "the tail is " + std::to_string(tail);
            }
        } else {
            tail = static_cast<float>(std::log(std::max(1 - known, 0.0)));
        }
        const std::size_t k = format_.width();
        if (k < width) {
            double outside = std::exp(static_cast<double>(tail));
            for (std::size_t i = k; i < width; ++i) {
                outside += std::exp(static_cast<double>(scratch_.values[i]));
            }
            tail = static_cast<float>(std::log(outside));
        }
        position.ids = std::span(scratch_.ids).first(k);
        position.values = std::span(scratch_.values).first(k);
        position.tail = tail;
        return std::nullopt;
    }

    /// Adds the divergence of the position's stored form.
    void measure(const PositionTargets& position, StoredRow& row) const {
        if (manifest_.format == StoreFormat::full) {
            return;
        }
        StoredRow one;
        one.mask.assign(1, std::byte{1});
        one.tokens = 1;
        one.streams.resize(row.streams.size());
        format_.encode(position, one);
        const std::vector<TokenRun> runs{{0, 0, 1}};
        std::vector<std::int32_t> ids(format_.width());
        std::vector<std::byte> bytes(format_.width() * element_size(format_.value_type()));
        std::vector<float> values(format_.width());
        float tail = 0;
        format_.decode(view_of(one), runs, {ids.data(), bytes.data(), &tail});
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = element_as_float({format_.value_type(), bytes}, i);
        }
        const StoredDistribution stored{ids, values, tail};
        row.kl_sum += manifest_.format == StoreFormat::sampled ? kl_stored_teacher(position.logits, stored)
                                                               : kl_teacher_stored(position.logits, stored);
        ++row.kl_tokens;
    }

    const StoreManifest& manifest_;
    const PositionFormat& format_;
    Scratch scratch_;
};

}  // namespace

RowCodec::RowCodec(const StoreManifest& manifest)
    : manifest_(manifest),
      format_(make_position_format(manifest)),
      streams_(format_ ? format_->streams() : tensor_streams(manifest)) {}

RowCodec::~RowCodec() = default;

Result<std::vector<StoredRow>> RowCodec::encode(const TokenBatch& batch, const TeacherTargets& targets) const {
    if (!format_) {
        return encode_tensors(manifest_, batch, targets);
    }
    RowEncoder encoder(manifest_, *format_);
    if (auto refused = encoder.refusal(batch, targets)) {
        return invalid_input("the store: " + *refused);
    }
    std::vector<StoredRow> rows;
    for (std::size_t b = 0; b < batch.rows; ++b) {
        auto row = encoder.encode_row(batch, targets, b);
        if (!row) {
            return row.error();
        }
        rows.push_back(std::move(*row));
    }
    return rows;
}

std::optional<std::string> RowCodec::find_defect(const StoredRowView& row) const {
    if (row.mask.size() != (manifest_.sequence_length + std::size_t{7}) / 8) {
        return "its mask has " + std::to_string(row.mask.size()) + " bytes";
    }
    const auto positions = marked_positions(row.mask);
    if (positions.size() != row.tokens || (!positions.empty() && positions.back() >= manifest_.sequence_length)) {
        return "its mask has " + std::to_string(positions.size()) + " positions, it has " + std::to_string(row.tokens) +
               " tokens";
    }
    return format_ ? format_->find_defect(row) : find_length_defect(streams_, row);
}

Result<TeacherTargets> RowCodec::decode(const TokenBatch& batch, std::span<const StoredRowView> rows,
                                        TargetBuffers& buffers) const {
    if (!format_) {
        return decode_tensors(manifest_, batch, rows, buffers);
    }
    const std::size_t positions = std::size_t{batch.rows} * batch.columns;
    const bool logits = manifest_.format == StoreFormat::full;
    const std::size_t value_bytes = format_->width() * element_size(format_->value_type());
    const std::size_t ids_size = logits ? 0 : aligned(positions * format_->width() * sizeof(std::int32_t));
    const std::size_t tail_size = logits ? 0 : aligned(positions * sizeof(float));
    const std::size_t values_size = aligned(positions * value_bytes);
    const std::size_t total = ids_size + values_size + tail_size + positions;

    auto owner = buffers.take(total);
    std::byte* const ids = owner.get();
    std::byte* const values = ids + ids_size;
    std::byte* const tail = values + values_size;
    std::byte* const mask = tail + tail_size;
    std::vector<TokenRun> runs;
    for (std::size_t b = 0; b < batch.rows; ++b) {
        const std::size_t first = b * batch.columns;
        TargetArrays target;
        target.values = values + first * value_bytes;
        if (!logits) {
            target.ids = reinterpret_cast<std::int32_t*>(ids) + first * format_->width();
            target.tail = reinterpret_cast<float*>(tail) + first;
        }
        if (auto defect = mark_stored(batch, b, rows[b].mask, mask + first)) {
            return invalid_input("the store: row " + std::to_string(rows[b].row) + ": " + *defect);
        }
        find_runs({mask + first, batch.columns}, runs);
        clear_others(batch.columns, runs, target, format_->width(), value_bytes);
        format_->decode(rows[b], runs, target);
    }

    TeacherTargets targets;
    targets.kind = logits ? TeacherTargets::Kind::logits : TeacherTargets::Kind::topk;
    targets.rows = batch.rows;
    targets.columns = batch.columns;
    targets.width = format_->width();
    targets.vocabulary = manifest_.vocabulary;
    targets.values = {format_->value_type(), {values, positions * value_bytes}};
    targets.loss_mask = {ElementType::u8, {mask, positions}};
    if (!logits) {
        targets.ids = {ElementType::i32, {ids, positions * format_->width() * sizeof(std::int32_t)}};
        targets.tail = {ElementType::f32, {tail, positions * sizeof(float)}};
    }
    targets.held_bytes = total;
    targets.owner = std::move(owner);
    return targets;
}

Result<TeacherTargets> RowCodec::decode(const TokenBatch& batch, std::span<const StoredRow> rows,
                                        TargetBuffers& buffers) const {
    std::vector<StoredRowView> views;
    views.reserve(rows.size());
    for (const StoredRow& row : rows) {
        views.push_back(view_of(row));
    }
    return decode(batch, views, buffers);
}

}  // namespace distilld

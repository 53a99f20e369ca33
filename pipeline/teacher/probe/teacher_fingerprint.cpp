#include "pipeline/teacher/probe/teacher_fingerprint.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/json_text.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

constexpr std::size_t kTokens = 8;  // per position
/// Half precision, or a matrix product in another order, moves log-probabilities by hundredths.
constexpr double kTolerance = 0.25;
/// For hidden states: length of the difference over the longer one's; half precision stays at hundredths.
constexpr double kStatesTolerance = 0.25;
constexpr std::size_t kMaxCompared = 32;  // positions of one answer; rounding may double it
constexpr std::size_t kDescriptionDepth = 4;

using Likely = std::vector<std::pair<std::uint32_t, double>>;  // token, log-probability

/// All tokens that a row names.
Likely row_of(const TeacherTargets& targets, std::size_t position) {
    Likely row(targets.width);
    const bool topk = targets.kind == TeacherTargets::Kind::topk;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const std::size_t at = position * targets.width + i;
        row[i].first = topk ? element_as_id(targets.ids, at) : static_cast<std::uint32_t>(i);
        row[i].second = static_cast<double>(element_as_float(targets.values, at));
    }
    return row;
}

/// Turns logits into log-probabilities.
void normalise(Likely& row) {
    double max = row.front().second;
    for (const auto& [token, logit] : row) {
        max = std::max(max, logit);
    }
    double sum = 0;
    for (const auto& [token, logit] : row) {
        sum += std::exp(logit - max);
    }
    for (auto& [token, logit] : row) {
        logit -= max + std::log(sum);
    }
}

/// The most likely tokens of a position.
Likely likely_tokens(const TeacherTargets& targets, std::size_t position) {
    Likely row = row_of(targets, position);
    if (targets.kind == TeacherTargets::Kind::logits) {
        normalise(row);
    }
    const auto kept = static_cast<std::ptrdiff_t>(std::min(kTokens, row.size()));
    std::partial_sort(row.begin(), row.begin() + kept, row.end(), [](const auto& a, const auto& b) {
        return std::pair(-a.second, a.first) < std::pair(-b.second, b.first);
    });
    row.resize(static_cast<std::size_t>(kept));
    return row;
}

using Position = std::map<std::uint64_t, double>;

/// Parses [[[token, log-probability], …] per position]; empty if the text has another form.
std::optional<std::vector<Position>> read(const std::string& text) {
    const auto document = parse_json_text(text, kDescriptionDepth);
    if (!document || !document->is_array()) {
        return std::nullopt;
    }
    std::vector<Position> positions;
    for (const auto& row : document->get_array()) {
        if (!row.is_array()) {
            return std::nullopt;
        }
        Position& position = positions.emplace_back();
        for (const auto& pair : row.get_array()) {
            const auto* both = pair.if_array();
            if (both == nullptr || both->size() != 2 || !(*both)[0].is_number() || !(*both)[1].is_number()) {
                return std::nullopt;
            }
            position[static_cast<std::uint64_t>((*both)[0].to_number<double>())] = (*both)[1].to_number<double>();
        }
    }
    return positions;
}

/// Maximum difference of log-probabilities of tokens that both name; empty if they share too few.
std::optional<double> apart(const Position& a, const Position& b) {
    std::size_t common = 0;
    double max = 0;
    for (const auto& [token, value] : a) {
        if (const auto found = b.find(token); found != b.end()) {
            ++common;
            max = std::max(max, std::abs(value - found->second));
        }
    }
    // Nearly equal tokens may change places at the end of the list.
    return 2 * common >= std::min(a.size(), b.size()) ? std::optional(max) : std::nullopt;
}

bool alike(const Position& a, const Position& b) {
    return apart(a, b).value_or(2 * kTolerance) <= kTolerance;
}

Position position_of(const TeacherTargets& targets, std::size_t at) {
    const Likely row = likely_tokens(targets, at);
    return {row.begin(), row.end()};
}

/// Length of the difference of two vectors over the longer one's; `width` elements from position · width on.
double relative_distance(const ArrayView& a, const ArrayView& b, std::size_t position, std::size_t width) {
    double difference = 0;
    double first = 0;
    double second = 0;
    for (std::size_t i = position * width; i < (position + 1) * width; ++i) {
        const double one = element_as_double(a, i);
        const double other = element_as_double(b, i);
        difference += (one - other) * (one - other);
        first += one * one;
        second += other * other;
    }
    const double longer = std::max(first, second);
    return longer > 0 ? std::sqrt(difference / longer) : 0;
}

class ComparingDecoder final : public EncodedAnswer::Decoder {
  public:
    ComparingDecoder(EncodedAnswer first, EncodedAnswer second, ReplicaDifference numbers,
                     std::shared_ptr<ReplicaComparisons> comparisons)
        : first_(std::move(first)),
          second_(std::move(second)),
          numbers_(std::move(numbers)),
          comparisons_(std::move(comparisons)) {}
    ~ComparingDecoder() override { comparisons_->end(std::move(found_)); }

    FetchResult<TeacherTargets> decode() override {
        FetchResult<TeacherTargets> answer = first_.decode();
        const FetchResult<TeacherTargets> other = second_.decode();
        if (!answer || !other || answer->kind != other->kind || answer->width != other->width) {
            return answer;  // a replica that answers in another form fails its own requests
        }
        const AnswerDifference difference = difference_of(*answer, *other);
        if (difference.of_other_models()) {
            found_ = std::move(numbers_);
            found_->text = difference.text(answer->kind);
        }
        return answer;
    }

  private:
    EncodedAnswer first_;
    EncodedAnswer second_;
    ReplicaDifference numbers_;
    std::shared_ptr<ReplicaComparisons> comparisons_;
    std::optional<ReplicaDifference> found_;
};

/// The first values of each output, in the form of positions with tokens. The largest becomes ±25, so that kTolerance
/// is one percent of it.
std::string fingerprint_of_tensors(const TeacherTargets& targets) {
    constexpr double kLargest = 100 * kTolerance;
    json::array outputs;
    for (const SampleTensor& tensor : targets.tensors) {
        std::vector<double> values;
        double largest = 0;
        const std::size_t count = tensor.values.bytes.size() / element_size(tensor.values.type);
        for (std::size_t i = 0; i < std::min(kTokens, count); ++i) {
            values.push_back(element_as_double(tensor.values, i));
            largest = std::max(largest, std::abs(values.back()));
        }
        json::array pairs;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double scaled = largest > 0 ? values[i] / largest * kLargest : 0;
            pairs.push_back(json::array{i, std::round(scaled * 1e4) / 1e4});
        }
        outputs.push_back(std::move(pairs));
    }
    return to_text(outputs);
}

}  // namespace

std::string teacher_fingerprint(const TeacherTargets& targets) {
    if (targets.kind == TeacherTargets::Kind::tensors) {
        return fingerprint_of_tensors(targets);
    }
    if (targets.kind == TeacherTargets::Kind::hidden_states || targets.width == 0) {
        return {};
    }
    json::array positions;
    for (std::size_t position = 0; position < std::size_t{targets.rows} * targets.columns; ++position) {
        if (!row_is_given(targets, position)) {
            continue;
        }
        json::array likely;
        for (const auto& [token, value] : likely_tokens(targets, position)) {
            likely.push_back(json::array{token, std::round(value * 1e4) / 1e4});
        }
        positions.push_back(std::move(likely));
    }
    return to_text(positions);
}

bool same_teacher(const std::string& a, const std::string& b) {
    const auto first = read(a);
    const auto second = read(b);
    if (!first || !second || first->size() != second->size()) {
        return true;
    }
    return std::equal(first->begin(), first->end(), second->begin(), alike);
}

AnswerDifference difference_of(const TeacherTargets& a, const TeacherTargets& b) {
    AnswerDifference difference;
    if (a.kind == TeacherTargets::Kind::tensors) {
        for (const SampleTensor& tensor : a.tensors) {
            const SampleTensor* other = find_tensor(b.tensors, tensor.name);
            const std::size_t count = tensor.values.bytes.size() / element_size(tensor.values.type);
            const bool same_shape = other != nullptr && other->sample_shape == tensor.sample_shape;
            const double distance = same_shape ? relative_distance(tensor.values, other->values, 0, count) : 2;
            ++difference.positions;
            difference.unlike += distance > kStatesTolerance ? 1 : 0;
            difference.max_apart = std::max(difference.max_apart, distance);
        }
        return difference;
    }
    const bool states = a.kind == TeacherTargets::Kind::hidden_states;
    const std::size_t positions = std::size_t{a.rows} * a.columns;
    const std::size_t stride = std::max<std::size_t>(1, positions / kMaxCompared);
    for (std::size_t at = 0; at < positions && a.width > 0; at += stride) {
        if (!row_is_given(a, at) || !row_is_given(b, at)) {
            continue;
        }
        ++difference.positions;
        const auto distance = states ? std::optional(relative_distance(a.values, b.values, at, a.width))
                                     : apart(position_of(a, at), position_of(b, at));
        difference.unlike += distance && *distance <= (states ? kStatesTolerance : kTolerance) ? 0 : 1;
        difference.max_apart = std::max(difference.max_apart, distance.value_or(0));
    }
    return difference;
}

std::string AnswerDifference::text(TeacherTargets::Kind kind) const {
    const std::string max = formatted("%.2g", max_apart);
    const std::string where = std::to_string(unlike) + " of " + std::to_string(positions) + " positions ";
    if (kind == TeacherTargets::Kind::tensors) {
        return std::to_string(unlike) + " of " + std::to_string(positions) +
               " outputs differ by more than 0.25 of their length, by " + max + " at most";
    }
    if (kind == TeacherTargets::Kind::hidden_states) {
        return "at " + where + "the hidden states differ by more than 0.25 of their length, by " + max + " at most";
    }
    return "at " + where +
           "the most likely tokens are others or their log-probabilities differ by more than 0.25, by " + max +
           " at most where the tokens are the same";
}

bool ReplicaComparisons::begin() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(under_way_, true);
}

void ReplicaComparisons::end(std::optional<ReplicaDifference> found) {
    const std::lock_guard lock(mutex_);
    under_way_ = false;
    if (found) {
        found_ = std::move(found);
    }
}

std::optional<ReplicaDifference> ReplicaComparisons::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(found_, std::nullopt);
}

EncodedAnswer compared_answer(EncodedAnswer first, EncodedAnswer second, ReplicaDifference numbers,
                              std::shared_ptr<ReplicaComparisons> comparisons) {
    const std::uint64_t wire_bytes = first.wire_bytes();
    return {std::make_unique<ComparingDecoder>(std::move(first), std::move(second), std::move(numbers),
                                               std::move(comparisons)),
            wire_bytes};
}

}  // namespace distilld

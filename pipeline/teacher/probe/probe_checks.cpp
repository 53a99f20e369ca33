#include "pipeline/teacher/probe/probe_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "pipeline/core/target_rows.hpp"

namespace distilld {

namespace {

/// Tolerance of a row's sum of probabilities, which should be 1: half precision keeps three digits.
constexpr double kNormalisationTolerance = 0.02;
/// A teacher may have up to this many times as many tokens as are known.
constexpr double kPadding = 2;

/// From 0 (the same rows) to 1 (nothing in common). Half precision and other orders of summation stay far below it.
constexpr double kDifferent = 0.1;
/// A changed token changes its own row as much as the following rows, and no row before it.
constexpr double kComparable = 0.5;
constexpr double kNothingBeside = 0.1;

/// The probabilities that a row names, and an upper bound for all other tokens.
struct NamedProbabilities {
    std::map<std::uint32_t, double> of;
    double max_other = 0;

    [[nodiscard]] double nearest(std::uint32_t id, double probability) const {
        const auto found = of.find(id);
        return found != of.end() ? found->second : std::min(probability, max_other);
    }
};

NamedProbabilities named(const TeacherTargets& targets, std::size_t position) {
    NamedProbabilities row;
    row.max_other = std::numeric_limits<double>::infinity();
    for (std::size_t i = position * targets.width; i < (position + 1) * targets.width; ++i) {
        const double probability = std::exp(static_cast<double>(element_as_float(targets.values, i)));
        row.of[element_as_id(targets.ids, i)] = probability;
        row.max_other = std::min(row.max_other, probability);
    }
    return row;
}

/// Sum of the differences over the sum of the larger values. A token that only one row names counts only by its excess
/// over the least of the other row's k best.
double distance_of_named(const TeacherTargets& targets, std::size_t a, std::size_t b) {
    const NamedProbabilities first = named(targets, a);
    const NamedProbabilities second = named(targets, b);
    double apart = 0;
    double larger = 0;
    for (const auto& [id, probability] : first.of) {
        const double other = second.nearest(id, probability);
        apart += std::abs(probability - other);
        larger += std::max(probability, other);
    }
    for (const auto& [id, probability] : second.of) {
        if (!first.of.contains(id)) {
            apart += std::abs(probability - first.nearest(id, probability));
            larger += probability;
        }
    }
    return larger > 0 ? apart / larger : 0;
}

std::vector<double> softmax(const TeacherTargets& targets, std::size_t position) {
    std::vector<double> row(targets.width);
    double max = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = element_as_float(targets.values, position * targets.width + i);
        max = std::max(max, row[i]);
    }
    double sum = 0;
    for (double& value : row) {
        value = std::exp(value - max);
        sum += value;
    }
    for (double& value : row) {
        value /= sum;
    }
    return row;
}

double distance_of_logits(const TeacherTargets& targets, std::size_t a, std::size_t b) {
    const std::vector<double> first = softmax(targets, a);
    const std::vector<double> second = softmax(targets, b);
    double apart = 0;
    double larger = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
        apart += std::abs(first[i] - second[i]);
        larger += std::max(first[i], second[i]);
    }
    return apart / larger;
}

double distance_of_states(const TeacherTargets& targets, std::size_t a, std::size_t b) {
    double apart = 0;
    double larger = 0;
    for (std::size_t i = 0; i < targets.width; ++i) {
        const double first = element_as_float(targets.values, a * targets.width + i);
        const double second = element_as_float(targets.values, b * targets.width + i);
        apart += (first - second) * (first - second);
        larger += std::max(first * first, second * second);
    }
    return larger > 0 ? std::sqrt(apart / larger) : 0;
}

/// Distance between the rows of the first two sequences at a column; 0 if either is missing.
double distance_at(const TeacherTargets& targets, std::uint32_t column) {
    const std::size_t first = column;
    const std::size_t second = std::size_t{targets.columns} + column;
    if (column >= targets.columns || !row_is_given(targets, first) || !row_is_given(targets, second)) {
        return 0;
    }
    switch (targets.kind) {
        case TeacherTargets::Kind::topk:
            return distance_of_named(targets, first, second);
        case TeacherTargets::Kind::logits:
            return distance_of_logits(targets, first, second);
        case TeacherTargets::Kind::hidden_states:
            return distance_of_states(targets, first, second);
        case TeacherTargets::Kind::tensors:
            break;  // they have no columns
    }
    return 0;
}

}  // namespace

std::optional<std::string> width_defect(const TeacherTargets& targets, std::uint32_t top_k, std::uint32_t vocabulary) {
    const std::uint32_t wanted = vocabulary == 0 ? top_k : std::min(top_k, vocabulary);
    if (targets.kind != TeacherTargets::Kind::topk || targets.width >= wanted || targets.width == targets.vocabulary) {
        return std::nullopt;
    }
    return "/teacher/top_k: " + std::to_string(wanted) + " entries per position are wanted, the teacher sends " +
           std::to_string(targets.width);
}

std::optional<std::string> normalisation_defect(const TeacherTargets& targets, std::uint32_t vocabulary) {
    if (targets.kind != TeacherTargets::Kind::topk) {
        return std::nullopt;
    }
    const std::size_t positions = std::size_t{targets.rows} * targets.columns;
    const double known = static_cast<double>(std::max<std::uint64_t>(vocabulary, targets.vocabulary));
    const double most_others = known > 0 ? known * kPadding : std::numeric_limits<double>::infinity();
    for (std::size_t position = 0; position < positions; ++position) {
        if (!row_is_given(targets, position)) {
            continue;
        }
        double sum = 0;
        double least = 1;
        for (std::size_t i = 0; i < targets.width; ++i) {
            const auto value = static_cast<double>(element_as_float(targets.values, position * targets.width + i));
            sum += std::exp(value);
            least = std::min(least, std::exp(value));
        }
        const double named = sum;
        const bool has_tail = !targets.tail.bytes.empty();
        if (has_tail) {
            sum += std::exp(static_cast<double>(element_as_float(targets.tail, position)));
        }
        if (sum > 1 + kNormalisationTolerance || (has_tail && sum < 1 - kNormalisationTolerance)) {
            return "the probabilities of position " + std::to_string(position) + " add up to " + std::to_string(sum) +
                   ": these are not log-probabilities of a softmax";
        }
        if (named + most_others * least < 1 - kNormalisationTolerance) {
            return "the " + std::to_string(targets.width) + " most likely tokens of position " +
                   std::to_string(position) + " have " + std::to_string(named) +
                   " of the probability together, and no other can have more than " + std::to_string(least) +
                   ": these are not log-probabilities of a softmax";
        }
        std::vector<std::uint32_t> ids;
        ids.reserve(targets.width);
        for (std::size_t i = 0; i < targets.width; ++i) {
            ids.push_back(element_as_id(targets.ids, position * targets.width + i));
        }
        std::sort(ids.begin(), ids.end());
        if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
            return "position " + std::to_string(position) + " names the same token twice";
        }
    }
    return std::nullopt;
}

bool looks_like_half_precision(const TeacherTargets& targets) {
    constexpr double kGrid = 1024;
    constexpr double kRounding = 0.02;  // of a log-softmax in fp32, in steps of the grid
    constexpr std::size_t kEnough = 6;  // the chance that this many lie on it is 10⁻⁸
    constexpr std::size_t kMaxOfRow = 64;
    const bool predicts = targets.kind == TeacherTargets::Kind::logits || targets.kind == TeacherTargets::Kind::topk;
    if (!predicts || targets.values.type != ElementType::f32) {
        return false;
    }
    std::size_t seen = 0;
    const std::size_t positions = std::size_t{targets.rows} * targets.columns;
    for (std::size_t position = 0; position < positions; ++position) {
        if (!row_is_given(targets, position)) {
            continue;
        }
        const double first = element_as_float(targets.values, position * targets.width);
        for (std::size_t i = 1; i < std::min<std::size_t>(targets.width, kMaxOfRow); ++i) {
            const double steps = (element_as_float(targets.values, position * targets.width + i) - first) * kGrid;
            if (!std::isfinite(steps) || std::abs(steps) < 1) {
                continue;  // equal values tell nothing
            }
            if (std::abs(steps - std::round(steps)) > kRounding) {
                return false;
            }
            ++seen;
        }
    }
    return seen >= kEnough;
}

std::optional<std::string> alignment_defect(const TeacherTargets& targets) {
    if (targets.rows < kAlignmentRows || targets.columns <= kAlignmentColumn) {
        return std::nullopt;
    }
    const std::string where = "the row of position ";
    const double before = distance_at(targets, kAlignmentColumn - 1);
    const double at = distance_at(targets, kAlignmentColumn);
    if (before >= kDifferent && before >= kComparable * at) {
        return where + std::to_string(kAlignmentColumn - 1) +
               " changes with the token after it: the rows are shifted by one, or the model is not a causal one";
    }
    const double after = distance_at(targets, kAlignmentColumn + 1);
    if (after >= kDifferent && at <= kNothingBeside * after) {
        return where + std::to_string(kAlignmentColumn) +
               " does not change with its own token, and the next one does: the rows are shifted by one";
    }
    return std::nullopt;
}

std::shared_ptr<const TokenBatch> probe_tokens(std::uint32_t vocabulary, std::uint32_t rows, std::uint32_t columns) {
    constexpr std::uint32_t kCommon = 32;
    constexpr std::uint32_t kOther = 3;
    static constexpr std::uint32_t kFirst[] = {1, 2, 0};
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = rows;
    tokens->columns = columns;
    const std::uint32_t modulus = std::max<std::uint32_t>(vocabulary, 1);
    const auto id = [modulus](std::uint32_t row, std::uint32_t column) {
        std::uint32_t chosen = column < kProbeColumns ? kFirst[column] : column * 7 % kCommon;
        if (column == kAlignmentColumn && row % kAlignmentRows == 1) {
            chosen = kOther;
        }
        return static_cast<std::int32_t>(chosen % modulus);
    };
    for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t column = 0; column < columns; ++column) {
            tokens->input_ids.push_back(id(row, column));
            tokens->labels.push_back(column + 1 < columns ? id(row, column + 1) : kIgnoredLabel);
        }
    }
    tokens->lengths.assign(rows, static_cast<std::int32_t>(columns));
    tokens->target_tokens = std::uint64_t{columns - 1} * rows;
    return tokens;
}

}  // namespace distilld

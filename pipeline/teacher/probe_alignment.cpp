#include "pipeline/teacher/probe_alignment.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <vector>

#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

/// From 0 (the same rows) to 1 (nothing in common). Half precision and another order of summation stay far below it.
constexpr double kDifferent = 0.1;
/// A row behind a changed token changes as much as the ones that follow; one before it does not change.
constexpr double kComparable = 0.5;
constexpr double kNothingBeside = 0.1;

/// The probabilities that a row names, and what those of other tokens are at most.
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

/// Sum of the differences over the sum of the larger ones. A token that only one of the rows names counts as far as
/// it cannot have been below the k best of the other.
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

/// Between the rows of the first two sequences at a column; 0 where one of them was not given.
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
    }
    return 0;
}

}  // namespace

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

}  // namespace distilld

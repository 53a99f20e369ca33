#include "pipeline/teacher/probe_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

/// How far the probabilities of a row may miss 1: half precision keeps three digits.
constexpr double kNormalisationTolerance = 0.02;
/// How many times as many tokens as the student a teacher may know that does not tell.
constexpr double kPadding = 2;

}  // namespace

std::optional<std::string> width_defect(const TeacherTargets& targets, std::uint32_t top_k, std::uint32_t vocabulary) {
    const std::uint32_t wanted = vocabulary == 0 ? top_k : std::min(top_k, vocabulary);
    if (targets.kind != TeacherTargets::Kind::topk || targets.width >= wanted || targets.width == targets.vocabulary) {
        return std::nullopt;
    }
    return "/teacher/top_k: " + std::to_string(wanted) + " entries a position are wanted, the teacher gives " +
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
    constexpr std::size_t kEnough = 6;  // by chance as many lie on it once in 10⁸ times
    constexpr std::size_t kMaxOfRow = 64;
    if (targets.kind == TeacherTargets::Kind::hidden_states || targets.values.type != ElementType::f32) {
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
                continue;  // equal ones tell nothing
            }
            if (std::abs(steps - std::round(steps)) > kRounding) {
                return false;
            }
            ++seen;
        }
    }
    return seen >= kEnough;
}

}  // namespace distilld

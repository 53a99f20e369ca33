#include "pipeline/teacher/probe_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

/// How far the probabilities of a row may miss 1: half precision keeps three digits.
constexpr double kNormalisationTolerance = 0.02;

}  // namespace

std::optional<std::string> normalisation_defect(const TeacherTargets& targets) {
    if (targets.kind != TeacherTargets::Kind::topk) {
        return std::nullopt;
    }
    const std::size_t positions = std::size_t{targets.rows} * targets.columns;
    for (std::size_t position = 0; position < positions; ++position) {
        if (!row_is_given(targets, position)) {
            continue;
        }
        double sum = 0;
        for (std::size_t i = 0; i < targets.width; ++i) {
            sum += std::exp(static_cast<double>(element_as_float(targets.values, position * targets.width + i)));
        }
        const bool has_tail = !targets.tail.bytes.empty();
        if (has_tail) {
            sum += std::exp(static_cast<double>(element_as_float(targets.tail, position)));
        }
        if (sum > 1 + kNormalisationTolerance || (has_tail && sum < 1 - kNormalisationTolerance)) {
            return "the probabilities of position " + std::to_string(position) + " add up to " + std::to_string(sum) +
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

#include "pipeline/teacher/teacher_fingerprint.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::size_t kTokens = 8;  // of a position
/// Half precision, or a matrix product in another order, moves log-probabilities by hundredths.
constexpr double kTolerance = 0.25;
constexpr std::size_t kMaxDepth = 4;

using Likely = std::vector<std::pair<std::uint32_t, double>>;  // token, log-probability

/// All that a row names.
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

/// Logits into log-probabilities.
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

using Position = std::map<std::uint64_t, double>;

/// [[[token, log-probability], …] of each position]; nothing when it is not that.
std::optional<std::vector<Position>> read(const std::string& text) {
    const auto document = parse_json_text(text, kMaxDepth);
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

bool alike(const Position& a, const Position& b) {
    std::size_t common = 0;
    for (const auto& [token, value] : a) {
        const auto found = b.find(token);
        if (found == b.end()) {
            continue;
        }
        ++common;
        if (std::abs(value - found->second) > kTolerance) {
            return false;
        }
    }
    // Nearly equal tokens may change places at the end of the list.
    return 2 * common >= std::min(a.size(), b.size());
}

}  // namespace

std::string teacher_fingerprint(const TeacherTargets& targets) {
    if (targets.kind == TeacherTargets::Kind::hidden_states || targets.width == 0) {
        return {};
    }
    json::array positions;
    for (std::size_t position = 0; position < std::size_t{targets.rows} * targets.columns; ++position) {
        if (!row_is_given(targets, position)) {
            continue;
        }
        Likely row = row_of(targets, position);
        if (targets.kind == TeacherTargets::Kind::logits) {
            normalise(row);
        }
        const auto kept = static_cast<std::ptrdiff_t>(std::min(kTokens, row.size()));
        std::partial_sort(row.begin(), row.begin() + kept, row.end(), [](const auto& a, const auto& b) {
            return std::pair(-a.second, a.first) < std::pair(-b.second, b.first);
        });
        json::array likely;
        for (std::ptrdiff_t i = 0; i < kept; ++i) {
            const auto& [token, value] = row[static_cast<std::size_t>(i)];
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

}  // namespace distilld

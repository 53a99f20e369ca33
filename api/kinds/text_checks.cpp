#include "api/kinds/text_checks.hpp"

#include <algorithm>
#include <utility>

#include "base/utf8.hpp"

namespace distilld::api {
namespace {

/// Counts letters that are left out, added, replaced or swapped with the next one. For short texts.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) {
        row[j] = j;
    }
    std::vector<std::size_t> above = row;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        const std::vector<std::size_t> two_above = std::exchange(above, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], two_above[j - 2] + 1);
            }
        }
    }
    return row[b.size()];
}

}  // namespace

std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates) {
    if (word.size() > 64) {
        return std::nullopt;
    }
    std::optional<std::string> best;
    std::size_t min_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
    for (const auto& candidate : candidates) {
        if (const auto distance = edit_distance(word, candidate); distance < min_distance) {
            min_distance = distance;
            best = candidate;
        }
    }
    return best;
}

std::string quote(std::string_view text) {
    constexpr std::size_t kShown = 60;
    if (text.size() <= kShown) {
        return "'" + std::string(text) + "'";
    }
    return "'" + std::string(cut_utf8(text, kShown)) + "…'";
}

bool has_control_character(std::string_view text) {
    return std::any_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

bool has_odd_control_character(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    });
}

}  // namespace distilld::api

#include "pipeline/core/row_packing.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace distilld {

namespace {

using Row = std::vector<std::uint64_t>;

/// Packs the documents [first, end).
std::vector<Row> fill_rows(std::span<const std::uint32_t> lengths, std::uint64_t first, std::uint64_t end,
                           std::uint32_t capacity) {
    std::vector<std::uint64_t> by_length(end - first);
    std::iota(by_length.begin(), by_length.end(), first);
    std::ranges::sort(by_length, [&](std::uint64_t a, std::uint64_t b) {
        return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;
    });
    std::vector<Row> rows;
    std::set<std::pair<std::uint32_t, std::size_t>> with_room;  // free positions, and the row
    for (const std::uint64_t document : by_length) {
        const std::uint32_t length = lengths[document];
        if (length == 0 || length > capacity) {
            throw std::invalid_argument("document " + std::to_string(document) + " has " + std::to_string(length) +
                                        " positions, a row " + std::to_string(capacity));
        }
        const auto found = with_room.lower_bound({length, 0});
        const std::uint32_t room = found != with_room.end() ? found->first : capacity;
        const std::size_t row = found != with_room.end() ? found->second : rows.size();
        if (found != with_room.end()) {
            with_room.erase(found);
        } else {
            rows.emplace_back();
        }
        rows[row].push_back(document);
        if (room > length) {
            with_room.emplace(room - length, row);
        }
    }
    for (Row& row : rows) {
        std::ranges::sort(row);
    }
    std::ranges::sort(rows, {}, [](const Row& row) { return row.front(); });
    return rows;
}

}  // namespace

PackedRows pack_rows(std::span<const std::uint32_t> lengths, std::uint32_t capacity, std::uint64_t window) {
    PackedRows packed;
    packed.documents.reserve(lengths.size());
    packed.begins.push_back(0);
    for (std::uint64_t first = 0; first < lengths.size(); first += window) {
        const std::uint64_t end = std::min<std::uint64_t>(lengths.size(), first + window);
        for (const Row& row : fill_rows(lengths, first, end, capacity)) {
            packed.documents.insert(packed.documents.end(), row.begin(), row.end());
            packed.begins.push_back(packed.documents.size());
        }
    }
    return packed;
}

}  // namespace distilld

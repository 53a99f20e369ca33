#include "pipeline/core/row_packing.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "base/random.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using Row = std::vector<std::uint64_t>;

std::vector<Row> rows_of(const PackedRows& packed) {
    std::vector<Row> rows;
    for (std::uint64_t row = 0; row < packed.row_count(); ++row) {
        rows.emplace_back(packed.row(row).begin(), packed.row(row).end());
    }
    return rows;
}

/// Lengths as conversations have them: exp of a uniform number, 8 to 512.
std::vector<std::uint32_t> mixed_lengths(std::size_t count) {
    SplitMix64 random(7);
    std::vector<std::uint32_t> lengths(count);
    for (std::uint32_t& length : lengths) {
        length = static_cast<std::uint32_t>(8 * std::pow(64.0, static_cast<double>(random.below(1 << 20)) / (1 << 20)));
    }
    return lengths;
}

TEST(RowPacking, TheLongestGoesFirstIntoTheFullestRowWithRoom) {
    const std::vector<std::uint32_t> lengths{2, 5, 3, 8, 4, 1, 7};
    // 8 | 7 | 5 | 4 beside 5 | 3 beside 7 | 2 beside 8 | 1 beside 9.
    EXPECT_THAT(rows_of(pack_rows(lengths, 10)), ElementsAre(Row{0, 3}, Row{1, 4, 5}, Row{2, 6}));
}

TEST(RowPacking, DocumentsStayInTheirWindow) {
    const std::vector<std::uint32_t> lengths{6, 1, 4, 9, 3, 2};
    EXPECT_THAT(rows_of(pack_rows(lengths, 10, 3)), ElementsAre(Row{0, 2}, Row{1}, Row{3}, Row{4, 5}));
}

TEST(RowPacking, EachDocumentIsWholeAndInOneRow) {
    const auto lengths = mixed_lengths(20'000);
    const PackedRows packed = pack_rows(lengths, 512);
    Row seen;
    std::uint64_t last = 0;
    for (const Row& row : rows_of(packed)) {
        std::uint64_t filled = 0;
        for (const std::uint64_t document : row) {
            filled += lengths[document];
        }
        EXPECT_LE(filled, 512U);
        EXPECT_TRUE(std::ranges::is_sorted(row));
        EXPECT_GE(row.front() / kPackingWindow, last / kPackingWindow);
        last = row.front();
        seen.insert(seen.end(), row.begin(), row.end());
    }
    std::ranges::sort(seen);
    Row all(lengths.size());
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    EXPECT_EQ(seen, all);
}

TEST(RowPacking, LeavesLittleEmpty) {
    const auto lengths = mixed_lengths(20'000);
    const double positions = std::accumulate(lengths.begin(), lengths.end(), 0.0);
    const double filled = positions / (512.0 * static_cast<double>(pack_rows(lengths, 512).row_count()));
    EXPECT_GT(filled, 0.99);
}

TEST(RowPacking, RefusesWhatNoRowHolds) {
    EXPECT_THROW((void)pack_rows(std::vector<std::uint32_t>{3, 11}, 10), std::invalid_argument);
    EXPECT_THROW((void)pack_rows(std::vector<std::uint32_t>{3, 0}, 10), std::invalid_argument);
    EXPECT_EQ(pack_rows({}, 10).row_count(), 0U);
}

}  // namespace
}  // namespace distilld

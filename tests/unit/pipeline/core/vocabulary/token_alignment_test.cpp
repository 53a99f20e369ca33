#include "pipeline/core/vocabulary/token_alignment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string_view>
#include <utility>

namespace distilld {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

TokenTable table(std::vector<std::string> bytes, std::optional<std::int32_t> end = {}, Ids frame = {}) {
    return {std::move(bytes), end, std::move(frame), false};
}

TEST(TokenAlignment, PositionsMeetWhereBothHaveReadTheSameBytes) {
    const TokenAlignment alignment(table({"th", "e", " ca", "t"}), table({"t", "he", " c", "at"}));
    // the cat: student th|e| ca|t, teacher t|he| c|at
    EXPECT_THAT(alignment.partners(Ids{0, 1, 2, 3}, Ids{0, 1, 2, 3}), ElementsAre(-1, 1, -1, 3));
}

TEST(TokenAlignment, IdsAroundATextStandForNothing) {
    const TokenAlignment begun(table({"<s>", "a", "b"}, {}, {0}), table({"a", "b", "<|b|>"}, {}, {2}));
    EXPECT_THAT(begun.partners(Ids{0, 1, 2}, Ids{2, 0, 1}), ElementsAre(0, 1, 2));
    const TokenAlignment one_begun(table({"<s>", "a", "b"}, {}, {0}), table({"a", "b"}));
    EXPECT_THAT(one_begun.partners(Ids{0, 1, 2}, Ids{0, 1}), ElementsAre(-1, 0, 1));
    // Written in the text, it stands for its characters, as for a tokenizer that does not know it.
    const TokenAlignment written(table({"<s>", "a"}, {}, {0}), table({"<", "s", ">", "a"}));
    EXPECT_THAT(written.partners(Ids{0, 0, 1}, Ids{0, 1, 2, 3}), ElementsAre(-1, 2, 3));
    // The same id begins and ends texts.
    const TokenAlignment both(table({"a", "</s>"}, 1, {1}), table({"a"}));
    EXPECT_THAT(both.partners(Ids{1, 0}, Ids{0}), ElementsAre(-1, 0));
}

TEST(TokenAlignment, TheLastOfSeveralPositionsWithTheSameBytesCounts) {
    const TokenAlignment alignment(table({"a", ""}), table({"a", "", "b"}));
    EXPECT_THAT(alignment.partners(Ids{0, 1, 1}, Ids{0, 1, 2}), ElementsAre(-1, -1, 1));
}

TEST(TokenAlignment, AnAddedSpaceStandsForNothing) {
    TokenTable spaced = table({" the", " cat", " "});
    spaced.adds_space = true;
    const TokenAlignment alignment(spaced, table({"the", " ca", "t", " the"}));
    EXPECT_THAT(alignment.partners(Ids{0, 1}, Ids{0, 1, 2}), ElementsAre(0, 2));
    EXPECT_THAT(alignment.partners(Ids{0, 1}, Ids{3, 1, 2}), ElementsAre(0, 2)) << "the space is the text's";
    const TokenAlignment other_way(table({"the", " ca", "t"}), spaced);
    EXPECT_THAT(other_way.partners(Ids{0, 1, 2}, Ids{0, 1}), ElementsAre(0, -1, 1));
}

TEST(TokenAlignment, NothingMeetsBehindBytesThatDiffer) {
    const TokenAlignment alignment(table({"a", "\xC3\xA9", "b"}), table({"a", "e\xCC\x81", "b"}));
    EXPECT_THAT(alignment.partners(Ids{0, 1, 2}, Ids{0, 1, 2}), ElementsAre(0, -1, -1));
    EXPECT_THAT(alignment.partners(Ids{0, 99, 2}, Ids{0, 2, -1}), ElementsAre(-1, 0, 2)) << "unknown ids are empty";
    EXPECT_THAT(alignment.partners(Ids{}, Ids{0}), ElementsAre());
    EXPECT_THAT(alignment.partners(Ids{0}, Ids{}), ElementsAre(-1));
}

TEST(TokenAlignment, EqualBytesAreOneTokenAndSoAreTheEndsOfText) {
    const TokenAlignment alignment(table({"a", "b", "<|end|>", "b", ""}, 2), table({"b", "</s>", "c", "<|end|>"}, 1));
    EXPECT_EQ(alignment.student_id(0), 3) << "the highest of several";
    EXPECT_EQ(alignment.student_id(1), 2);
    EXPECT_EQ(alignment.student_id(2), kNoPartner);
    EXPECT_EQ(alignment.student_id(3), kNoPartner) << "the student's ends texts";
    EXPECT_EQ(alignment.student_id(4), kNoPartner);
    EXPECT_THAT(alignment.common_ids(), ElementsAre(3, 2));
    const TokenAlignment without_end(table({"a", "</s>"}), table({"</s>"}, 0));
    EXPECT_EQ(without_end.student_id(0), kNoPartner);
}

/// Cuts a text at random into tokens of up to three bytes; the table grows as needed.
Ids cut(std::string_view text, std::mt19937& random, std::map<std::string, std::int32_t>& ids) {
    Ids cut;
    while (!text.empty()) {
        const std::string token(text.substr(0, 1 + random() % 3));
        text.remove_prefix(token.size());
        cut.push_back(ids.emplace(token, static_cast<std::int32_t>(ids.size())).first->second);
    }
    return cut;
}

TokenTable table_of(const std::map<std::string, std::int32_t>& ids) {
    std::vector<std::string> bytes(ids.size());
    for (const auto& [token, id] : ids) {
        bytes[static_cast<std::size_t>(id)] = token;
    }
    return table(std::move(bytes));
}

TEST(TokenAlignment, OfRandomCutsThePartnersAreThePlacesThatBothHave) {
    std::mt19937 random(7);
    std::size_t met = 0;
    for (int round = 0; round < 300; ++round) {
        std::string text(random() % 40, ' ');
        for (char& c : text) {
            c = static_cast<char>('a' + random() % 3);
        }
        std::map<std::string, std::int32_t> ours;
        std::map<std::string, std::int32_t> theirs;
        const Ids student = cut(text, random, ours);
        const Ids teacher = cut(text, random, theirs);
        const TokenTable student_table = table_of(ours);
        const TokenTable teacher_table = table_of(theirs);
        std::map<std::size_t, std::int32_t> places;  // bytes read: the teacher's position
        std::size_t read = 0;
        for (std::size_t j = 0; j < teacher.size(); ++j) {
            read += teacher_table.bytes[static_cast<std::size_t>(teacher[j])].size();
            places[read] = static_cast<std::int32_t>(j);
        }
        Ids expected;
        read = 0;
        for (const std::int32_t id : student) {
            read += student_table.bytes[static_cast<std::size_t>(id)].size();
            expected.push_back(places.contains(read) ? places[read] : kNoPartner);
            met += expected.back() != kNoPartner ? 1 : 0;
        }
        const TokenAlignment alignment(student_table, teacher_table);
        ASSERT_EQ(alignment.partners(student, teacher), expected) << text;
        for (const auto& [token, id] : theirs) {
            ASSERT_EQ(alignment.student_id(static_cast<std::uint32_t>(id)),
                      ours.contains(token) ? ours[token] : kNoPartner);
        }
    }
    EXPECT_GT(met, 1000U);
}

}  // namespace
}  // namespace distilld

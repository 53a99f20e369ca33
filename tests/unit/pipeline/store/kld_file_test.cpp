#include "pipeline/store/kld_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
void append(std::string& text, T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Two chunks of 5 tokens over a vocabulary of 3: rows for positions 2 and 3, codes padded to four.
std::string two_chunks() {
    std::string text = "_logits_";
    for (const std::int32_t number : {5, 3, 2}) {
        append(text, number);
    }
    for (std::int32_t token = 0; token < 10; ++token) {
        append(text, token % 3);
    }
    for (std::uint16_t row = 0; row < 4; ++row) {
        append(text, 0.5F);
        append(text, -8.0F - static_cast<float>(row));
        for (std::uint16_t code = 0; code < 4; ++code) {
            append(text, static_cast<std::uint16_t>(code * 2 + row));
        }
    }
    return text;
}

class KldFileTest : public testing::Test {
  protected:
    Result<KldFile> open(const std::string& text) {
        std::ofstream(file_, std::ios::binary | std::ios::trunc) << text;
        return KldFile::open(file_);
    }
    std::string refusal(const std::string& text) {
        const Result<KldFile> opened = open(text);
        return opened ? "taken" : opened.error().message;
    }

    test::TemporaryFolder folder_;
    std::filesystem::path file_ = folder_.path() / "base.kld";
};

TEST_F(KldFileTest, GivesTokensAndRowsOfTheSecondHalf) {
    const KldFile file = open(two_chunks()).value();
    EXPECT_EQ(file.context(), 5U);
    EXPECT_EQ(file.vocabulary(), 3U);
    EXPECT_EQ(file.chunks(), 2U);
    EXPECT_EQ(file.first_row(), 2U);
    EXPECT_EQ(file.token(0, 4), 1);
    EXPECT_EQ(file.token(1, 0), 2);
    std::vector<float> values(3);
    file.read_row(0, 2, values);
    EXPECT_THAT(values, ElementsAre(-8.0F, -7.0F, -6.0F));
    file.read_row(1, 3, values);  // the fourth row: code 2·i + 3 in steps of a half above −11
    EXPECT_THAT(values, ElementsAre(-9.5F, -8.5F, -7.5F));
}

TEST_F(KldFileTest, NoBeginningIsTakenForTheWhole) {
    const std::string whole = two_chunks();
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("base.kld")) << size;
    }
}

TEST_F(KldFileTest, NumbersThatCannotBeAreRefused) {
    for (const std::size_t at : {8U, 12U, 16U}) {
        for (const std::int32_t number : {-1, 0, 2'147'483'647}) {
            std::string text = two_chunks();
            std::memcpy(text.data() + at, &number, sizeof number);
            EXPECT_THAT(refusal(text), HasSubstr("base.kld")) << at << ' ' << number;
        }
    }
    EXPECT_THAT(refusal("_logits!" + two_chunks().substr(8)), HasSubstr("llama.cpp"));
}

}  // namespace
}  // namespace distilld

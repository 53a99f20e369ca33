#include "pipeline/data/lines/byte_source.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/pipeline/data/packed.hpp"

namespace distilld {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Neither all alike nor without pattern: some hundred KB packed.
std::string long_text() {
    std::string text;
    std::uint32_t state = 1;
    while (text.size() < 3'000'000) {
        state = state * 1664525U + 1013904223U;
        text += "line " + std::to_string(state >> 12U) + "\n";
    }
    return text;
}

class ByteSourceTest : public ::testing::Test {
  protected:
    /// Everything, read in steps of `step` bytes.
    Result<std::string> read(std::string_view content, std::size_t step = 10'007) {
        const auto file = folder_.write("data", content);
        const auto source = open_bytes(file);
        if (!source) {
            return source.error();
        }
        std::string text;
        std::vector<char> part(step);
        std::uint64_t before = 0;
        for (;;) {
            const Result<std::size_t> count = (*source)->read(part);
            if (!count) {
                return count.error();
            }
            EXPECT_GE((*source)->file_bytes_read(), before);
            before = (*source)->file_bytes_read();
            if (*count == 0) {
                EXPECT_EQ(before, content.size());
                EXPECT_EQ((*source)->read(part).value(), 0U) << "the end is not final";
                return text;
            }
            text.append(part.data(), *count);
        }
    }

    std::string refusal(std::string_view content) {
        const Result<std::string> text = read(content);
        if (text) {
            return "(was read)";
        }
        EXPECT_EQ(text.error().kind, ErrorKind::invalid_input);
        EXPECT_THAT(text.error().message, StartsWith(folder_.path().string() + "/data: "));
        return text.error().message;
    }

    test::TemporaryFolder folder_;
};

TEST_F(ByteSourceTest, UnpacksWhatIsPackedWhateverItsName) {
    const std::string text = long_text();
    for (const std::string& content : {text, test::gzipped(text), test::zstd_packed(text)}) {
        EXPECT_EQ(read(content).value() == text, true);
        EXPECT_EQ(read(content, 1U << 22).value() == text, true);
    }
    EXPECT_EQ(read(test::gzipped("ab\n"), 1).value(), "ab\n");
    EXPECT_EQ(read(test::zstd_packed("ab\n"), 1).value(), "ab\n");
    EXPECT_EQ(read("").value(), "");
    EXPECT_EQ(read(test::gzipped("")).value(), "");
    EXPECT_EQ(read(test::zstd_packed("")).value(), "");
}

TEST_F(ByteSourceTest, SeveralMembersAreOneText) {
    const std::string empty_gzip = test::gzipped("");
    EXPECT_EQ(read(test::gzipped("one\n") + empty_gzip + test::gzipped("two\n")).value(), "one\ntwo\n");
    EXPECT_EQ(read(test::gzipped("one\n") + std::string(1000, '\0')).value(), "one\n") << "padding of a tape";
    const std::string skippable("\x50\x2A\x4D\x18\x03\x00\x00\x00xyz", 11);
    EXPECT_EQ(read(skippable + test::zstd_packed("one\n") + skippable + test::zstd_packed("two\n")).value(),
              "one\ntwo\n");
}

TEST_F(ByteSourceTest, WhatIsCutOffIsAnErrorWhereverItIsCut) {
    for (const std::string& whole : {test::gzipped(long_text()), test::zstd_packed(long_text())}) {
        for (const std::size_t length : {std::size_t{9}, whole.size() / 2, whole.size() - 3, whole.size() - 1}) {
            EXPECT_THAT(refusal(whole.substr(0, length)), HasSubstr("is cut off: the ")) << length;
        }
    }
    EXPECT_THAT(refusal(test::gzipped("one\n") + test::gzipped("two\n").substr(0, 12)), HasSubstr("is cut off"));
    EXPECT_THAT(refusal(test::zstd_packed("one\n") + test::zstd_packed("two\n").substr(0, 9)), HasSubstr("is cut off"));
}

TEST_F(ByteSourceTest, WhatIsDamagedIsAnError) {
    struct Case {
        std::string whole;
        const char* what;
    };
    for (const Case& test : {Case{test::gzipped(long_text()), "its gzip data are damaged ("},
                             Case{test::zstd_packed(long_text()), "its zstd data are damaged ("}}) {
        std::string flipped = test.whole;
        flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x10);
        EXPECT_THAT(refusal(flipped), HasSubstr(test.what));
        EXPECT_THAT(refusal(test.whole + "rest of another file"), HasSubstr(test.what));
    }
    std::string sum = test::gzipped("some text");
    sum[sum.size() - 6] = static_cast<char>(sum[sum.size() - 6] ^ 1);
    EXPECT_THAT(refusal(sum), HasSubstr("its gzip data are damaged (incorrect data check)"));
}

TEST_F(ByteSourceTest, AZstdWindowAboveTheBoundIsRefused) {
    EXPECT_EQ(read(test::zstd_packed("a\n", kMaxZstdWindowLog)).value(), "a\n");
    EXPECT_THAT(refusal(test::zstd_packed("a\n", kMaxZstdWindowLog + 1)),
                HasSubstr("its zstd data need a window of more than 128 MiB: compress it again without --long"));
}

TEST_F(ByteSourceTest, WhatIsPackedOtherwiseIsNamed) {
    EXPECT_THAT(refusal(std::string("\xFD"
                                    "7zXZ\0\0\4",
                                    8)),
                AllOf(HasSubstr("is compressed with xz"), HasSubstr("decompress it")));
    EXPECT_THAT(refusal("BZh91AY&SY"), HasSubstr("is compressed with bzip2"));
    EXPECT_THAT(refusal("PK\x03\x04rest"), HasSubstr("is a zip archive"));
    EXPECT_THAT(refusal("PAR1rest"), HasSubstr("is a Parquet file"));
}

}  // namespace
}  // namespace distilld

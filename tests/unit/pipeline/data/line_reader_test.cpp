#include "pipeline/data/lines/line_reader.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> lines_of(std::string_view content) {
    const test::TemporaryFolder folder;
    LineReader reader(folder.write("lines", content), 1U << 20, 64);
    EXPECT_TRUE(reader.open().has_value());
    std::vector<std::string> lines;
    while (reader.next().value()) {
        lines.emplace_back(reader.line());
        EXPECT_EQ(reader.line_number(), lines.size());
        EXPECT_LE(reader.bytes_consumed(), content.size());
    }
    EXPECT_EQ(reader.bytes_consumed(), content.size());
    EXPECT_FALSE(reader.next().value()) << "the end is not final";
    return lines;
}

TEST(LineReader, SplitsAtLineFeeds) {
    EXPECT_TRUE(lines_of("").empty());
    EXPECT_THAT(lines_of("\n"), ElementsAre(""));
    EXPECT_THAT(lines_of("a"), ElementsAre("a"));
    EXPECT_THAT(lines_of("a\nb\n"), ElementsAre("a", "b"));
    EXPECT_THAT(lines_of("a\r\n\r\nb"), ElementsAre("a", "", "b"));
    EXPECT_THAT(lines_of("a\rb\n"), ElementsAre("a\rb"));
}

TEST(LineReader, DropsTheByteOrderMarkOfTheFirstLineOnly) {
    EXPECT_THAT(lines_of("\xEF\xBB\xBF"
                         "a\n\xEF\xBB\xBF"
                         "b"),
                ElementsAre("a",
                            "\xEF\xBB\xBF"
                            "b"));
    EXPECT_THAT(lines_of("\xEF\xBB\xBF"), ElementsAre(""));
}

// Lines that begin and end everywhere in the buffer, some longer than it is at first.
TEST(LineReader, KeepsLinesThatCrossItsBuffer) {
    std::vector<std::string> expected;
    std::string content;
    for (std::size_t i = 0; i < 400; ++i) {
        expected.emplace_back(i == 200 ? 700'000 : i * 37 % 9'001, static_cast<char>('a' + i % 26));
        content += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
    }
    EXPECT_EQ(lines_of(content), expected);
}

TEST(LineReader, RefusesLinesAboveTheLimit) {
    const test::TemporaryFolder folder;
    const std::string ten(10, 'x');
    const auto file = folder.write("lines", ten + "\n" + ten + "x\n");
    LineReader reader(file, 10, 64);
    ASSERT_TRUE(reader.open().has_value());
    EXPECT_TRUE(reader.next().value());
    const auto second = reader.next();
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().kind, ErrorKind::invalid_input);
    EXPECT_EQ(second.error().message, file.string() + ":2: line is longer than 10 bytes");
}

// The buffer stops growing: a file without line feeds is refused long before all of it has been read.
TEST(LineReader, RefusesAFileWithoutLineFeedsEarly) {
    const test::TemporaryFolder folder;
    const auto file = folder.write("zeros", "");
    std::filesystem::resize_file(file, 64U << 20);  // without data on the disk
    LineReader reader(file, 1U << 20, 64);
    ASSERT_TRUE(reader.open().has_value());
    EXPECT_FALSE(reader.next().has_value());
}

// A pipe that nobody writes to would be waited for with the job's slot, until the service is asked to stop.
TEST(LineReader, RefusesWhatIsNoRegularFileAtOnce) {
    const test::TemporaryFolder folder;
    const auto pipe = folder.path() / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    for (const auto& file : {pipe, std::filesystem::path("/dev/zero"), std::filesystem::path("/dev/null")}) {
        LineReader reader(file, 1U << 20, 64);
        const auto opened = reader.open();
        ASSERT_FALSE(opened.has_value()) << file;
        EXPECT_EQ(opened.error().kind, ErrorKind::invalid_input);
        EXPECT_THAT(opened.error().message, HasSubstr(file.string() + ": is not a regular file"));
    }
}

TEST(LineReader, NamesTheFileThatCannotBeRead) {
    const test::TemporaryFolder folder;
    LineReader absent(folder.path() / "absent.jsonl", 10, 64);
    const auto opened = absent.open();
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().kind, ErrorKind::io);
    EXPECT_THAT(opened.error().message, HasSubstr("absent.jsonl: cannot open"));
    LineReader unreadable(folder.path(), 10, 64);
    const auto folder_opened = unreadable.open();
    ASSERT_FALSE(folder_opened.has_value());
    EXPECT_THAT(folder_opened.error().message, HasSubstr("is a folder"));
}

}  // namespace
}  // namespace distilld

#include "pipeline/data/token_cache.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <numeric>

#include "base/crc32c.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What a start comes to.
struct Started {
    std::shared_ptr<const Dataset> rows;
    std::vector<std::string> infos;
    std::vector<std::string> warnings;
    int read = 0;  ///< blocks of lines that were read
};

/// Everything that training sees of a dataset.
std::string seen_of(const Dataset& rows) {
    std::string seen = rows.hash() + (rows.has_text() ? " text " : " ids ") + (rows.names_teachers() ? "named " : "") +
                       std::to_string(rows.row_count()) + " " + std::to_string(rows.token_count());
    for (std::uint64_t row = 0; row < rows.row_count(); ++row) {
        const TokenBatch batch = rows.batch(row, {row, rows.row_count() - 1 - row});
        seen += "\n" + std::to_string(rows.row_length(row)) + " " + std::to_string(rows.target_tokens(row)) + " " +
                std::to_string(batch.target_tokens) + " " + std::to_string(batch.columns) + ":";
        for (std::size_t i = 0; i < batch.input_ids.size(); ++i) {
            seen += " " + std::to_string(batch.input_ids[i]) + "/" + std::to_string(batch.labels[i]);
        }
    }
    const Dataset* of_teacher = rows.teacher_documents();
    return of_teacher == nullptr ? seen : seen + "\nteacher: " + seen_of(*of_teacher);
}

/// Lines of ids; with labels in the last quarter, so that the ids before them have to be copied.
std::string lines_of_ids(int count, int length, bool labels) {
    std::string lines;
    for (int number = 0; number < count; ++number) {
        std::string ids;
        std::string targets;
        for (int i = 0; i < length; ++i) {
            const std::string id = std::to_string((number * 31 + i) % 256);
            ids += (i == 0 ? "" : ",") + id;
            targets += (i == 0 ? "" : ",") + (i % 3 == 0 ? "-100" : id);
        }
        const bool labelled = labels && number > count * 3 / 4;
        lines += R"({"input_ids":[)" + ids + "]" + (labelled ? R"(,"labels":[)" + targets + "]" : "") + "}\n";
    }
    return lines;
}

class TokenCacheTest : public ::testing::Test {
  protected:
    static DatasetOptions how(bool packing, std::uint32_t sequence_length = 16) {
        DatasetOptions options;
        options.sequence_length = sequence_length;
        options.packing = packing;
        return options;
    }

    Started start(DatasetOptions options, bool cached = true, std::uint64_t min_bytes = 0) {
        Started started;
        TokenCache cache(
            cache_folder(), reader_, [&](const std::string& text) { started.infos.push_back(text); },
            [&](const std::string& text) { started.warnings.push_back(text); }, min_bytes);
        options.cache = cached ? &cache : nullptr;
        options.on_progress = [&](const ReadingProgress&) {
            ++started.read;
            if (while_reading_) {
                while_reading_();
            }
            return true;
        };
        const std::vector<fs::path> files{file_};
        if (options.teachers.empty()) {
            started.rows = load_jsonl_dataset(files, tokenizer_.get(), options).value();
        } else {
            started.rows = load_mixed_dataset(files, tokenizer_.get(), options).value();
        }
        if (sweeps_) {
            cache.sweep();
        }
        return started;
    }

    [[nodiscard]] fs::path cache_folder() const { return folder_.path() / "out" / ".cache"; }

    /// The folder of the one dataset that is kept.
    [[nodiscard]] fs::path kept() const {
        EXPECT_EQ(test::file_count(cache_folder()), 1U);
        return fs::directory_iterator(cache_folder())->path();
    }

    static void flip_byte(const fs::path& file, std::size_t at) {
        std::string bytes = test::read_bytes(file);
        bytes.at(at) = static_cast<char>(bytes.at(at) ^ 0x10);
        test::write_bytes(file, bytes);
    }

    test::TemporaryFolder folder_;
    fs::path file_ = folder_.write("data.jsonl", lines_of_ids(200, 40, false));
    std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
    std::string reader_ = "distilld, byte tokenizer";
    std::function<void()> while_reading_;
    bool sweeps_ = false;
};

struct Case {
    const char* name;
    bool packing;
    std::string lines;
    std::vector<std::string> teachers{};
};

class TokenCacheOf : public TokenCacheTest, public ::testing::WithParamInterface<Case> {};

TEST_P(TokenCacheOf, TheSecondStartSeesTheSameWithoutReading) {
    file_ = folder_.write("data.jsonl", GetParam().lines);
    DatasetOptions options = how(GetParam().packing);
    options.teachers = GetParam().teachers;
    const Started without = start(options, false);
    const Started first = start(options);
    const Started second = start(options);
    EXPECT_EQ(seen_of(*first.rows), seen_of(*without.rows));
    EXPECT_EQ(seen_of(*second.rows), seen_of(*without.rows));
    EXPECT_EQ(second.rows->tokens_read(), without.rows->tokens_read());
    EXPECT_GT(first.read, 0);
    EXPECT_EQ(second.read, 0);
    EXPECT_THAT(first.infos, ElementsAre(AllOf(HasSubstr(" tokens of " + file_.string() + " are kept in "),
                                               HasSubstr(kept().string()))));
    EXPECT_THAT(second.infos, ElementsAre(AllOf(HasSubstr(" tokens of " + file_.string() + " are mapped from "),
                                                HasSubstr(kept().string()))));
    EXPECT_THAT(first.warnings, IsEmpty());
    EXPECT_THAT(second.warnings, IsEmpty());
}

const std::string kText = R"({"text":"some text"})"
                          "\n"
                          R"({"prompt":"what? ","completion":"that"})"
                          "\n"
                          R"({"text":"and more of it","teacher":"a"})"
                          "\n";
const std::string kOfTwo = R"({"input_ids":[1,2,3,4],"teacher":"a"})"
                           "\n"
                           R"({"input_ids":[5,6,7],"labels":[-100,6,7],"teacher":"b"})"
                           "\n"
                           R"({"text":"of a, and long enough for several rows of it","teacher":"a"})"
                           "\n"
                           R"({"text":"xyz","teacher":"b"})"
                           "\n";

const std::string kTold = R"({"prompt":"a ","completion":"bc","teacher_prompt":"say ","teacher":"b"})"
                          "\n"
                          R"({"input_ids":[1,2,3,4],"teacher_input_ids":[7,8,3,4],"teacher":"a"})"
                          "\n"
                          R"({"prompt":"d","completion":"efghijklmnop","teacher_prompt":"","teacher":"b"})"
                          "\n";

INSTANTIATE_TEST_SUITE_P(Datasets, TokenCacheOf,
                         ::testing::Values(Case{"TextJoined", true, kText}, Case{"TextByDocument", false, kText},
                                           Case{"IdsJoined", true, lines_of_ids(9, 30, false)},
                                           // More than a buffer, and labels that begin in the middle.
                                           Case{"LateLabelsJoined", true, lines_of_ids(6000, 90, true)},
                                           Case{"LateLabelsByDocument", false, lines_of_ids(32000, 12, true)},
                                           Case{"TeachersJoined", true, kOfTwo, {"a", "b"}},
                                           Case{"TeachersByDocument", false, kOfTwo, {"a", "b"}},
                                           Case{"TeacherPrompts", false, kTold},
                                           Case{"TeacherPromptsOfTwo", false, kTold, {"a", "b"}}),
                         [](const auto& row) { return row.param.name; });

TEST_F(TokenCacheTest, WhatDecidesTheTokensDecidesWhereTheyLie) {
    start(how(true));
    EXPECT_EQ(start(how(true)).read, 0);
    EXPECT_GT(start(how(true, 8)).read, 0);
    EXPECT_GT(start(how(false)).read, 0);
    DatasetOptions split = how(false);
    split.overflow = Overflow::split;
    EXPECT_GT(start(split).read, 0);
    DatasetOptions other = how(true);
    other.vocabulary_size = 300;
    EXPECT_GT(start(other).read, 0);
    other = how(true);
    other.completion_only_loss = false;
    EXPECT_GT(start(other).read, 0);
    reader_ = "distilld, another tokenizer";
    EXPECT_GT(start(how(true)).read, 0);
    EXPECT_EQ(start(how(true)).read, 0);
}

TEST_F(TokenCacheTest, AFileThatChangedIsReadAnew) {
    start(how(true));
    std::string lines = test::read_bytes(file_);
    const auto then = fs::last_write_time(file_);
    lines[lines.find("1,2,3")] = '7';
    const std::string old = start(how(true)).rows->hash();
    test::write_bytes(file_, lines);
    fs::last_write_time(file_, then);  // size and time are those from before
    const Started changed = start(how(true));
    EXPECT_GT(changed.read, 0);
    EXPECT_NE(changed.rows->hash(), old);
}

TEST_F(TokenCacheTest, AFileThatChangesWhileItIsReadIsNotKept) {
    while_reading_ = [this] { std::ofstream(file_, std::ios::app) << "\n"; };
    const Started started = start(how(true));
    EXPECT_THAT(started.warnings, ElementsAre(file_.string() + " changed while it was read: its tokens are not kept "
                                                               "for the next start"));
    EXPECT_FALSE(fs::exists(folder_ / "out")) << "what was made for it is left";
    EXPECT_FALSE(seen_of(*started.rows).empty());
}

TEST_F(TokenCacheTest, LittleIsNotWorthAFile) {
    EXPECT_THAT(start(how(true), true, TokenCache::kMinBytes).infos, IsEmpty());
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    EXPECT_THAT(start(how(true), true, fs::file_size(file_) + 1).infos, IsEmpty());
    EXPECT_THAT(start(how(true), true, fs::file_size(file_)).infos, ElementsAre(HasSubstr("are kept in")));
}

TEST_F(TokenCacheTest, APipeIsReadAndNotKept) {
    const fs::path pipe = folder_ / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    TokenCache cache(cache_folder(), reader_, {}, {});
    EXPECT_EQ(cache.place_of(std::array{file_, pipe}, how(true)), std::nullopt);
    EXPECT_NE(cache.place_of(std::array{file_}, how(true)), std::nullopt);
}

TEST_F(TokenCacheTest, RefusedDataLeavesNothingBehind) {
    file_ = folder_.write("data.jsonl", lines_of_ids(200, 40, false) + "{\"input_ids\":[1,\n");
    EXPECT_THROW(start(how(true)), ErrorException);
    EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(TokenCacheTest, WhatIsNotWholeIsReadAnewWithAWord) {
    file_ = folder_.write("data.jsonl", lines_of_ids(1000, 90, true));
    const std::string good = seen_of(*start(how(true)).rows);
    const auto expect_anew = [&](const std::string& file, const std::string& reason) {
        const Started anew = start(how(true));
        EXPECT_GT(anew.read, 0);
        EXPECT_EQ(seen_of(*anew.rows), good);
        EXPECT_THAT(anew.warnings, ElementsAre(AllOf(HasSubstr("cannot be used, reading the data again: "),
                                                     HasSubstr(file), HasSubstr(reason))));
        EXPECT_EQ(start(how(true)).read, 0) << "what was damaged was not replaced";
    };
    fs::resize_file(kept() / "0.ids", 1000);
    expect_anew("0.ids", "has 1000 bytes, not those that were written");
    fs::resize_file(kept() / "0.ids", fs::file_size(kept() / "0.ids") + 1);
    expect_anew("0.ids", "bytes, not those that were written");
    for (const char* name : {"0.ids", "0.labels", "0.rows"}) {
        flip_byte(kept() / name, 20);
        expect_anew(name, "is damaged");
        flip_byte(kept() / name, fs::file_size(kept() / name) - 1);
        expect_anew(name, "is damaged");
    }
    fs::remove(kept() / "0.rows");
    expect_anew("0.rows", "cannot open");
    flip_byte(kept() / "index.json", 30);
    expect_anew("index.json", "is damaged");
    test::write_bytes(kept() / "index.json", "");
    expect_anew("index.json", "is damaged");
}

TEST_F(TokenCacheTest, RowsBeyondTheTokensAreRefusedWhateverTheChecksumsSay) {
    const auto sum_of = [](const std::string& text) { return std::to_string(crc32c(std::as_bytes(std::span(text)))); };
    const std::string good = seen_of(*start(how(true)).rows);
    std::string rows = test::read_bytes(kept() / "0.rows");
    const std::string before = R"("rows_sum":)" + sum_of(rows);
    rows.at(5) = 1;  // the first row begins 2^40 tokens further on
    std::string index = test::read_bytes(kept() / "index.json");
    index.resize(index.find('\n'));
    ASSERT_NE(index.find(before), std::string::npos) << index;
    index.replace(index.find(before), before.size(), R"("rows_sum":)" + sum_of(rows));
    test::write_bytes(kept() / "0.rows", rows);
    test::write_bytes(kept() / "index.json", index + "\n" + sum_of(index) + "\n");
    const Started anew = start(how(true));
    EXPECT_THAT(anew.warnings, ElementsAre(HasSubstr("0.rows: a row reaches beyond the tokens")));
    EXPECT_EQ(seen_of(*anew.rows), good);
}

TEST_F(TokenCacheTest, WithoutAFolderTokensAreHeldInMemory) {
    folder_.write("out", "a file");
    const Started started = start(how(true));
    EXPECT_THAT(started.warnings, ElementsAre(HasSubstr("tokens are held in memory and read again at the next start")));
    EXPECT_EQ(seen_of(*started.rows), seen_of(*start(how(true), false).rows));
    EXPECT_EQ(test::read_bytes(folder_ / "out"), "a file");
}

/// Files of at most so many bytes, while it is there.
class FileLimit {
  public:
    explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    FileLimit(const FileLimit&) = delete;
    FileLimit& operator=(const FileLimit&) = delete;

  private:
    rlimit before_{};
    void (*handler_)(int);
};

TEST_F(TokenCacheTest, WhatCannotBeWrittenToTheEndIsReadAgainIntoMemory) {
    file_ = folder_.write("data.jsonl", lines_of_ids(4000, 90, true));  // 1.4 MB of ids, as many of labels
    for (const bool packing : {true, false}) {
        const std::string good = seen_of(*start(how(packing, 128), false).rows);
        // In the middle of ids, behind the first buffer, and when they are finished.
        for (const rlim_t limit : {rlim_t{1'200'000}, rlim_t{4000 * 90 * 4 - 8}}) {
            const FileLimit limited(limit);
            const Started started = start(how(packing, 128));
            EXPECT_THAT(started.warnings, ElementsAre(AllOf(HasSubstr("tokens are held in memory"),
                                                            HasSubstr(": cannot write: File too large"))));
            EXPECT_EQ(seen_of(*started.rows), good);
            EXPECT_FALSE(fs::exists(folder_ / "out"));
        }
    }
}

TEST_F(TokenCacheTest, SweepingLeavesWhatIsReadAndWhatIsNotOurs) {
    start(how(true, 8));
    start(how(true, 9));
    fs::create_directories(cache_folder() / "huggingface");
    const std::string digits(32, 'a');
    fs::create_directories(cache_folder() / ("." + digits + ".tokens.17.tmp"));
    fs::create_directories(cache_folder() / (digits + "a.tokens"));
    sweeps_ = true;
    start(how(true, 8));
    EXPECT_EQ(start(how(true, 8)).read, 0);
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(cache_folder())) {
        left.push_back(entry.path().filename().string());
    }
    EXPECT_EQ(left.size(), 3U) << ::testing::PrintToString(left);
    EXPECT_TRUE(fs::exists(cache_folder() / "huggingface"));
    EXPECT_TRUE(fs::exists(cache_folder() / (digits + "a.tokens")));
}

}  // namespace
}  // namespace distilld

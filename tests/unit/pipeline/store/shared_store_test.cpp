#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>

#include "pipeline/store/store_checks.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"
#include "tests/unit/pipeline/store/store_fixture.hpp"

namespace distilld {
namespace {

using test::read_bytes;
using test::StoreData;
using test::TemporaryFolder;
using test::write_bytes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace fs = std::filesystem;

constexpr std::chrono::seconds kExpiry{100};

/// Several writers of one folder, each with a clock of its own.
class SharedStore : public testing::Test {
  protected:
    Result<std::unique_ptr<StoreWriter>> try_join(JobAttempt attempt = {}) {
        StoreWriterOptions options;
        options.leases.attempt = std::move(attempt);
        options.shared = true;
        options.leases.expiry = kExpiry;
        options.leases.now = [this] { return now_; };
        return open_store_writer(folder_.path(), StoreData::manifest(StoreFormat::packed), options);
    }
    std::unique_ptr<StoreWriter> join() { return try_join().value(); }

    static std::vector<std::uint64_t> claim(StoreWriter& writer) { return writer.claim(true).value().rows; }
    static void write(StoreWriter& writer, const std::vector<std::uint64_t>& rows) {
        StoreData::write(writer, rows, 2).value();
    }

    /// The bytes of the shards and of the list's lines are those of a single writer; each is listed once.
    void expect_whole() {
        const TemporaryFolder alone;
        write(*open_store_writer(alone.path(), StoreData::manifest(StoreFormat::packed)).value(),
              StoreData::all_rows());
        const auto expected = test::shard_bytes(alone.path());
        const auto found = test::shard_bytes(folder_.path());
        ASSERT_EQ(found.size(), expected.size());
        EXPECT_EQ(found, expected);
        std::ifstream list(folder_ / "shards.jsonl");
        std::size_t lines = 0;
        for (std::string line; std::getline(list, line);) {
            ++lines;
        }
        EXPECT_EQ(lines, 3U);
        const auto verified = verify_store(folder_.path()).value();
        EXPECT_EQ(verified.rows, StoreData::kRows);
        EXPECT_THAT(verified.defects, IsEmpty());
        EXPECT_THAT(verified.foreign, IsEmpty());
        EXPECT_THAT(verified.unsealed, IsEmpty());
    }

    /// A process that claims a shard, writes these rows of it and is killed.
    void be_killed_behind(const std::vector<std::uint64_t>& rows) {
        int pipe_ends[2];
        ASSERT_EQ(::pipe(pipe_ends), 0);
        const pid_t child = ::fork();
        if (child == 0) {
            const auto writer = join();
            claim(*writer);
            write(*writer, rows);
            const ssize_t told = ::write(pipe_ends[1], "x", 1);
            ::pause();
            ::_exit(told == 1 ? 0 : 1);
        }
        char told = 0;
        ASSERT_EQ(::read(pipe_ends[0], &told, 1), 1);
        ASSERT_EQ(::kill(child, SIGKILL), 0);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ::close(pipe_ends[0]);
        ::close(pipe_ends[1]);
    }

    TemporaryFolder folder_;
    std::chrono::steady_clock::time_point now_;
};

TEST_F(SharedStore, IsWrittenByTwoWhoShareTheShards) {
    const auto first = join();
    const auto second = join();
    EXPECT_THAT(claim(*first), ElementsAre(0, 1, 2));
    EXPECT_THAT(claim(*second), ElementsAre(3, 4, 5));
    write(*second, {0, 5, 3});
    EXPECT_EQ(second->progress().held_rows, 2U) << "row 0 is the other's";
    EXPECT_THAT(claim(*first), ElementsAre(6));
    const StoreClaim none = second->claim(true).value();
    EXPECT_THAT(none.rows, IsEmpty());
    EXPECT_EQ(none.others_shards, 2U);
    EXPECT_THAT(none.other, HasSubstr("process " + std::to_string(::getpid())));
    EXPECT_FALSE(none.last);
    write(*first, {6, 2, 1, 0});
    EXPECT_FALSE(first->claim(true).value().last) << "the other has one";
    write(*second, {4});
    EXPECT_TRUE(first->claim(true).value().last);
    EXPECT_TRUE(second->claim(false).value().last);
    EXPECT_EQ(first->progress().sealed_rows, StoreData::kRows);
    EXPECT_EQ(second->progress().sealed_rows, StoreData::kRows);
    expect_whole();
}

TEST_F(SharedStore, IsNotWrittenByOneWhoWantsItAlone) {
    const auto alone = [this] { return open_store_writer(folder_.path(), StoreData::manifest(StoreFormat::packed)); };
    {
        const auto writer = join();
        ASSERT_FALSE(alone());
        EXPECT_THAT(alone().error().message, HasSubstr("another process writes this store"));
    }
    const auto writer = alone();
    ASSERT_TRUE(writer);
    ASSERT_FALSE(try_join());
    EXPECT_THAT(try_join().error().message, HasSubstr("another process writes this store and does not share it"));
}

TEST_F(SharedStore, GoesOnWithWhatOneWhoWasKilledHasWritten) {
    be_killed_behind({1});
    write_bytes(folder_ / ".shard-000000.safetensors.4711.3.tmp", "as when it was sealing the shard");
    write_bytes(folder_ / ".leases.json.4711.4.tmp", "or had not written its leases yet");
    const auto writer = join();
    EXPECT_THAT(claim(*writer), ElementsAre(0, 2));
    write(*writer, {0, 2});
    EXPECT_THAT(claim(*writer), ElementsAre(3, 4, 5));
    write(*writer, {3, 4, 5});
    write(*writer, claim(*writer));
    expect_whole();
}

TEST_F(SharedStore, LosesNoRowsToOneWhoWritesItAloneLater) {
    be_killed_behind({1});
    {
        const auto writer = join();
        claim(*writer);
        write(*writer, {0});
    }
    const auto alone = open_store_writer(folder_.path(), StoreData::manifest(StoreFormat::packed)).value();
    EXPECT_EQ(alone->progress().held_rows, 2U);
    EXPECT_THAT(alone->claim(true).value().rows, ElementsAre(2, 3, 4, 5, 6));
    EXPECT_TRUE(alone->claim(true).value().last);
    write(*alone, {2, 3, 4, 5, 6});
    expect_whole();
}

TEST_F(SharedStore, WhoLeavesLeavesItsLeases) {
    {
        const auto writer = join();
        claim(*writer);
        write(*writer, {2});
    }
    EXPECT_THAT(claim(*join()), ElementsAre(0, 1));
}

/// As from a process that hangs, or whose node is cut off.
TEST_F(SharedStore, TakesTheLeasesOfOneWhoDoesNotGetOn) {
    const auto slow = join();
    const auto quick = join();
    EXPECT_THAT(claim(*slow), ElementsAre(0, 1, 2));
    write(*slow, {1});
    write(*quick, claim(*quick));
    write(*quick, claim(*quick));
    now_ += kExpiry - std::chrono::seconds(1);
    EXPECT_THAT(claim(*quick), IsEmpty());
    static_cast<void>(slow->claim(false).value());  // what it has written counts
    EXPECT_THAT(claim(*quick), IsEmpty());
    now_ += kExpiry - std::chrono::seconds(1);
    static_cast<void>(slow->claim(false).value());  // nothing new
    EXPECT_THAT(claim(*quick), IsEmpty());
    now_ += std::chrono::seconds(1);
    EXPECT_THAT(claim(*quick), ElementsAre(0, 2)) << "one row was written already";

    // It comes back, and what it writes counts no more.
    write(*slow, {0, 2});
    EXPECT_EQ(slow->progress().sealed_rows, 4U);
    EXPECT_THAT(slow->claim(true).value().rows, IsEmpty());
    write(*quick, {2, 0});
    EXPECT_TRUE(slow->claim(true).value().last);
    EXPECT_TRUE(quick->claim(true).value().last);
    expect_whole();
}

TEST_F(SharedStore, ASlowWriterKeepsNothingThatItHasLost) {
    const auto slow = join();
    EXPECT_THAT(claim(*slow), ElementsAre(0, 1, 2));
    write(*slow, {0});
    const auto quick = join();
    EXPECT_THAT(claim(*quick), ElementsAre(3, 4, 5));
    now_ += kExpiry;
    EXPECT_THAT(claim(*quick), ElementsAre(1, 2));
    static_cast<void>(slow->sync().value());
    EXPECT_EQ(slow->progress().held_rows, 0U);
    EXPECT_THAT(claim(*slow), ElementsAre(6)) << "it is one of the writers again";
    now_ += kExpiry;
    write(*quick, {1, 2, 3, 4, 5});
    static_cast<void>(quick->claim(false).value());
    write(*slow, {6});
    EXPECT_TRUE(quick->claim(true).value().last);
    expect_whole();
}

/// The end came between the shard's file and its line, or within the line.
TEST_F(SharedStore, FindsAShardAgainThatIsNotListed) {
    {
        const auto writer = join();
        claim(*writer);
        write(*writer, {0, 1});
        std::string part;
        for (const auto& entry : fs::directory_iterator(folder_.path())) {
            part = entry.path().extension() == ".part" ? entry.path().string() : part;
        }
        ASSERT_FALSE(part.empty());
        const auto content = read_bytes(part);
        write(*writer, {2});
        ASSERT_FALSE(fs::exists(part));
        write_bytes(part, content);
        const auto list = read_bytes(folder_ / "shards.jsonl");
        write_bytes(folder_ / "shards.jsonl", list.substr(0, list.size() / 2));
    }
    const auto writer = join();
    EXPECT_THAT(claim(*writer), ElementsAre(2));
    write(*writer, {2});
    write(*writer, claim(*writer));
    write(*writer, claim(*writer));
    expect_whole();
}

TEST_F(SharedStore, TheOneWhoFindsAllRowsOfADeadOneSealsThem) {
    be_killed_behind({0, 1});
    {
        const auto writer = join();
        EXPECT_THAT(claim(*writer), ElementsAre(2));
    }
    // All three rows in a file, as when the end came before the sealing.
    const TemporaryFolder other;
    std::string part;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
        part = entry.path().extension() == ".part" ? entry.path().string() : part;
    }
    const auto alone = open_store_writer(other.path(), StoreData::manifest(StoreFormat::packed)).value();
    write(*alone, {2});
    write_bytes(part, read_bytes(part) + read_bytes(other / "shard-000000.part"));
    const auto writer = join();
    EXPECT_THAT(claim(*writer), ElementsAre(3, 4, 5));
    EXPECT_EQ(writer->progress().sealed_rows, 3U);
    write(*writer, {3, 4, 5});
    write(*writer, claim(*writer));
    expect_whole();
}

TEST_F(SharedStore, ALaterAttemptTakesTheShardsOfTheEarlierOneAtOnce) {
    const auto first = try_join({"job-a", 1}).value();
    const auto other = try_join({"job-b", 1}).value();
    EXPECT_THAT(claim(*first), ElementsAre(0, 1, 2));
    write(*first, {0, 1});
    EXPECT_THAT(claim(*other), ElementsAre(3, 4, 5));
    const auto second = try_join({"job-a", 2}).value();
    EXPECT_THAT(claim(*second), ElementsAre(2)) << "with the rows that are there";
    const Result<void> late = StoreData::write(*first, {2}, 2);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().message,
              folder_.path().string() + ": attempt 1 of job-a was replaced by attempt 2; nothing was changed");
    EXPECT_TRUE(first->is_replaced());
    EXPECT_FALSE(first->claim(true));
    EXPECT_FALSE(fs::exists(folder_ / "shards.jsonl"));
    write(*second, {2});
    write(*other, {3, 4, 5});
    write(*second, claim(*second));
    EXPECT_FALSE(second->is_replaced());
    EXPECT_FALSE(other->is_replaced());
    expect_whole();
}

TEST_F(SharedStore, AnEarlierAttemptStaysOutAfterTheEndOfTheLaterOne) {
    ASSERT_TRUE(try_join({"job-a", 2}));
    EXPECT_THAT(try_join({"job-a", 1}).error().message, HasSubstr("replaced by attempt 2"));
    EXPECT_TRUE(try_join({"job-a", 2}));
    EXPECT_TRUE(try_join({"job-a", 3}));
    EXPECT_TRUE(try_join());
}

TEST_F(SharedStore, AWriterAloneSealsWhatItsGuardLets) {
    StoreWriterOptions options;
    int asked = 0;
    bool lets = false;
    options.guard = [&](const std::function<Result<void>()>& change) {
        ++asked;
        return lets ? change() : Result<void>(io_error("replaced"));
    };
    const auto writer = open_store_writer(folder_.path(), StoreData::manifest(StoreFormat::packed), options).value();
    EXPECT_EQ(StoreData::write(*writer, {0, 1, 2}, 2).error().message, "replaced");
    EXPECT_EQ(writer->progress().sealed_rows, 0U);
    EXPECT_FALSE(fs::exists(folder_ / "shards.jsonl"));
    lets = true;
    ASSERT_TRUE(writer->sync());
    EXPECT_EQ(writer->progress().sealed_rows, 3U);
    EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace distilld

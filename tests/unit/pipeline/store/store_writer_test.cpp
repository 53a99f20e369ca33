#include "pipeline/store/store_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "pipeline/store/store_reader.hpp"
#include "tests/support/confined_child.hpp"
#include "tests/unit/pipeline/store/store_fixture.hpp"

namespace distilld {
namespace {

using test::read_bytes;
using test::StoreData;
using test::TemporaryFolder;
using test::write_bytes;
using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr StoreFormat kFormats[] = {StoreFormat::full, StoreFormat::topk, StoreFormat::packed, StoreFormat::topp,
                                    StoreFormat::sampled};

std::unique_ptr<StoreWriter> open(const fs::path& folder, StoreFormat format = StoreFormat::packed) {
    return open_store_writer(folder, StoreData::manifest(format)).value();
}

using Files = std::vector<std::pair<std::string, std::string>>;

Files written_in_order(StoreFormat format) {
    const TemporaryFolder folder;
    StoreData::write(*open(folder.path(), format), StoreData::all_rows(), 2).value();
    return test::shard_bytes(folder.path());
}

TEST(StoreWriter, ShardsDoNotDependOnOrderOrBatchSizeOrRestarts) {
    for (const StoreFormat format : kFormats) {
        const Files expected = written_in_order(format);
        ASSERT_EQ(expected.size(), 3U);
        for (const std::size_t batch_size : {1U, 7U}) {
            const TemporaryFolder folder;
            StoreData::write(*open(folder.path(), format), {6, 3, 0, 5, 1, 4, 2}, batch_size).value();
            EXPECT_EQ(test::shard_bytes(folder.path()), expected) << to_string(format);
        }
        const TemporaryFolder folder;
        for (const std::uint64_t row : {5U, 0U, 2U, 6U, 4U, 3U, 1U}) {
            StoreData::write(*open(folder.path(), format), {row}, 1).value();
        }
        EXPECT_EQ(test::shard_bytes(folder.path()), expected) << to_string(format);
    }
}

/// Whatever of a store leads elsewhere: nothing is read or written there.
TEST(StoreWriter, F3AStoreLiesWhereItMayAndNowhereElse) {
    const TemporaryFolder folder;
    const fs::path base = fs::canonical(folder.path());
    const FileRule rule{.roots = {base / "root"}};
    const auto write = [&]() -> std::string {
        auto opened = open_store_writer(base / "root/store", StoreData::manifest(StoreFormat::packed));
        if (!opened) {
            return test::outcome_of(opened);
        }
        return test::outcome_of(StoreData::write(**opened, StoreData::all_rows(), 2));
    };
    fs::create_directories(base / "root");
    EXPECT_EQ(test::in_confined_child(rule, write), "done");
    EXPECT_EQ(test::in_confined_child(rule, [&] { return test::outcome_of(open_store_reader(base / "root/store")); }),
              "done");
    for (const char* name : {"manifest.json", "shards.jsonl", "lock"}) {
        const fs::path file = base / "root/store" / name;
        fs::rename(file, base / name);
        const std::string content = read_bytes(base / name);
        fs::create_symlink(base / name, file);
        EXPECT_THAT(test::in_confined_child(rule, write), testing::StartsWith("path_not_allowed: ")) << name;
        EXPECT_EQ(read_bytes(base / name), content);
        fs::remove(file);
        fs::rename(base / name, file);
    }
    fs::rename(base / "root/store", base / "store");
    fs::create_directory_symlink("../store", base / "root/store");
    EXPECT_THAT(test::in_confined_child(rule, write), testing::StartsWith("path_not_allowed: "));
}

TEST(StoreWriter, SealsAShardWhenItsRowsAreThere) {
    const TemporaryFolder folder;
    const auto writer = open(folder.path());
    ASSERT_TRUE(StoreData::write(*writer, {0, 2, 6}, 2));
    EXPECT_EQ(writer->progress().held_rows, 3U);
    EXPECT_EQ(writer->progress().sealed_rows, 1U) << "row 6 is a shard";
    EXPECT_TRUE(writer->needs(1));
    EXPECT_FALSE(writer->needs(2));
    EXPECT_FALSE(writer->needs(7)) << "outside the dataset";
    EXPECT_FALSE(fs::exists(folder / "shard-000000.safetensors"));

    ASSERT_TRUE(StoreData::write(*writer, {2, 1, 1}, 1));
    EXPECT_EQ(writer->progress().sealed_rows, 4U);
    EXPECT_EQ(writer->progress().sealed_shards, 2U);
    EXPECT_EQ(writer->progress().sealed_tokens, 4U + 3U + 4U + 4U);
    EXPECT_TRUE(fs::exists(folder / "shard-000000.safetensors"));
    EXPECT_FALSE(fs::exists(folder / "shard-000000.part"));
}

TEST(StoreWriter, ReadsWhatItHoldsSealedOrNotAsAReaderWill) {
    for (const StoreFormat format : kFormats) {
        const TemporaryFolder folder;
        const auto writer = open(folder.path(), format);
        ASSERT_TRUE(StoreData::write(*writer, {0, 6, 4}, 3));
        const TokenBatch batch = StoreData::batch({4, 6});  // one is sealed, the other not
        const auto held = test::bytes_of(writer->read(batch).value());
        TargetBuffers buffers;
        const auto stored = writer->codec().encode(batch, StoreData::targets(batch, format)).value();
        EXPECT_EQ(held, test::bytes_of(writer->codec().decode(batch, stored, buffers).value()));
        EXPECT_THAT(writer->read(StoreData::batch({1})).error().message, HasSubstr("row 1 is not in the store"));

        ASSERT_TRUE(StoreData::write(*writer, StoreData::all_rows(), 7));
        const auto reader = open_store_reader(folder.path()).value();
        EXPECT_EQ(test::bytes_of(reader->read(batch).value()), held) << to_string(format);
    }
}

TEST(StoreWriter, LosesNoRowWhenItIsKilled) {
    const TemporaryFolder folder;
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto writer = open(folder.path());
        for (const std::uint64_t row : {5U, 1U, 3U, 0U}) {
            StoreData::write(*writer, {row}, 1).value();
        }
        const ssize_t told = ::write(pipe_ends[1], "4", 1);
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

    const auto writer = open(folder.path());
    EXPECT_EQ(writer->progress().held_rows, 4U);
    std::vector<std::uint64_t> needed;
    for (std::uint64_t row = 0; row < StoreData::kRows; ++row) {
        if (writer->needs(row)) {
            needed.push_back(row);
        }
    }
    EXPECT_THAT(needed, testing::ElementsAre(2, 4, 6));
    ASSERT_TRUE(StoreData::write(*writer, needed, 2));
    EXPECT_EQ(test::shard_bytes(folder.path()), written_in_order(StoreFormat::packed));
}

/// A crash of the machine may have left any part of what was written last.
TEST(StoreWriter, TakesARowThatIsTornForOneThatIsNotThere) {
    const TemporaryFolder folder;
    StoreData::write(*open(folder.path()), {0}, 1).value();
    const fs::path part = folder / "shard-000000.part";
    const std::size_t first = fs::file_size(part);
    StoreData::write(*open(folder.path()), {1}, 1).value();
    const std::string whole = read_bytes(part);
    for (const std::size_t size : {whole.size() - 1, first + 50, first + 1, first, first - 1, std::size_t{13}}) {
        write_bytes(part, whole.substr(0, size));
        const auto writer = open(folder.path());
        EXPECT_EQ(writer->needs(0), size < first) << size;
        EXPECT_TRUE(writer->needs(1));
    }
    std::string damaged = whole;
    damaged[whole.size() - 3] = static_cast<char>(damaged[whole.size() - 3] ^ 1);
    write_bytes(part, damaged);
    const auto writer = open(folder.path());
    EXPECT_TRUE(writer->needs(1));
    ASSERT_TRUE(StoreData::write(*writer, StoreData::all_rows(), 3));
    EXPECT_EQ(test::shard_bytes(folder.path()), written_in_order(StoreFormat::packed));
}

TEST(StoreWriter, GoesOnWhereverTheSealingEnded) {
    const TemporaryFolder folder;
    StoreData::write(*open(folder.path()), {0, 1}, 1).value();
    const std::string two_rows = read_bytes(folder / "shard-000000.part");
    StoreData::write(*open(folder.path()), {2}, 1).value();
    const Files sealed = test::shard_bytes(folder.path());
    const std::string list = read_bytes(folder / "shards.jsonl");

    // The list had the line, the file of unsealed rows was still there.
    write_bytes(folder / "shard-000000.part", two_rows);
    EXPECT_EQ(open(folder.path())->progress().held_rows, 3U);
    EXPECT_FALSE(fs::exists(folder / "shard-000000.part"));

    // The line was half there.
    write_bytes(folder / "shard-000000.part", two_rows);
    write_bytes(folder / "shards.jsonl", list.substr(0, list.size() / 2));
    {
        const auto writer = open(folder.path());
        EXPECT_TRUE(writer->needs(2));
        ASSERT_TRUE(StoreData::write(*writer, {2}, 1));
    }
    EXPECT_EQ(test::shard_bytes(folder.path()), sealed);
    EXPECT_EQ(read_bytes(folder / "shards.jsonl"), list);

    // Somebody has removed a shard: its rows are needed again.
    fs::remove(folder / "shard-000000.safetensors");
    const auto writer = open(folder.path());
    EXPECT_TRUE(writer->needs(0));
    ASSERT_TRUE(StoreData::write(*writer, {0, 1, 2}, 3));
    EXPECT_EQ(test::shard_bytes(folder.path()), sealed);
}

TEST(StoreWriter, RefusesAStoreOfOtherData) {
    const TemporaryFolder folder;
    (void)open(folder.path());
    const auto error = [&](auto change) {
        StoreManifest manifest = StoreData::manifest(StoreFormat::packed);
        change(manifest);
        const auto writer = open_store_writer(folder.path(), manifest);
        return writer ? std::string("taken") : writer.error().message;
    };
    EXPECT_THAT(error([](StoreManifest& m) { m.dataset_hash = "other"; }),
                HasSubstr(R"(dataset_hash is "d5", "other" is expected)"));
    EXPECT_THAT(error([](StoreManifest& m) { m.tokenizer_hash = "x"; }), HasSubstr("tokenizer_hash is"));
    EXPECT_THAT(error([](StoreManifest& m) { m.k = 5; }), HasSubstr("k is 6, 5 is expected"));
    EXPECT_THAT(error([](StoreManifest& m) { m.format = StoreFormat::topk; }), HasSubstr("format is \"packed\""));
    EXPECT_THAT(error([](StoreManifest& m) { m.teacher = "another"; }), HasSubstr("belongs to another teacher"));
    EXPECT_THAT(error([](StoreManifest& m) { m.temperature = 2; }), HasSubstr("temperature is 2"));
    EXPECT_THAT(error([](StoreManifest& m) { m.values = StoreValues::f32; }), HasSubstr("values is f32"));
    EXPECT_EQ(error([](StoreManifest& m) { m.teacher_name = "renamed"; }), "taken");
    EXPECT_EQ(error([](StoreManifest& m) { m.shard_rows = 0; }), "taken") << "its own shard_rows hold";

    StoreWriterOptions options;
    options.same_teacher = [](const std::string&, const std::string& wanted) { return wanted == "near"; };
    StoreManifest near = StoreData::manifest(StoreFormat::packed);
    near.teacher = "near";
    EXPECT_TRUE(open_store_writer(folder.path(), near, options));
}

TEST(StoreWriter, HasTheFolderForItself) {
    const TemporaryFolder folder;
    const auto writer = open(folder.path());
    const auto second = open_store_writer(folder.path(), StoreData::manifest(StoreFormat::packed));
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr("another process writes this store"));
}

/// A real file system that is full: needs root, as in CI.
TEST(StoreWriter, GoesOnWhenAFullDiskHasRoomAgain) {
    const TemporaryFolder mounted;
    if (::mount("tmpfs", mounted.path().c_str(), "tmpfs", 0, "size=40k") != 0) {
        GTEST_SKIP() << "a file system cannot be mounted here";
    }
    {
        const fs::path folder = mounted / "store";
        const auto writer = open(folder, StoreFormat::full);
        write_bytes(mounted / "ballast", std::string(26U << 10U, 'x'));
        Result<void> result;
        for (std::uint64_t row = 0; row < StoreData::kRows && result; ++row) {
            result = StoreData::write(*writer, {row}, 1);
        }
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().kind, ErrorKind::disk_full);
        EXPECT_THAT(result.error().message, HasSubstr(folder.string()));
        fs::remove(mounted / "ballast");
        const auto again = StoreData::write(*writer, StoreData::all_rows(), 2);
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_EQ(writer->progress().sealed_rows, StoreData::kRows);
        EXPECT_EQ(test::shard_bytes(folder), written_in_order(StoreFormat::full));
    }
    ::umount2(mounted.path().c_str(), MNT_DETACH);
}

TEST(StoreManifest, ChoosesShardsByTheBytesOfARow) {
    StoreManifest manifest = StoreData::manifest(StoreFormat::packed);
    manifest.vocabulary = 151'936;
    manifest.k = 64;
    manifest.sequence_length = 512;
    manifest.rows = 1'000'000;
    manifest.shard_rows = 0;
    EXPECT_EQ(max_token_bytes(complete_manifest(manifest).value()), 64U * 18 / 8 + 64 * 2 + 4);
    EXPECT_EQ(complete_manifest(manifest).value().shard_rows, (32U << 20U) / (276 * 512));
    manifest.rows = 10'000;
    EXPECT_EQ(complete_manifest(manifest).value().shard_rows, 157U) << "64 shards";
    manifest.rows = 100;
    EXPECT_EQ(complete_manifest(manifest).value().shard_rows, 64U) << "of so many rows at least";
    manifest.format = StoreFormat::full;
    manifest.sequence_length = 2048;
    EXPECT_EQ(complete_manifest(manifest).value().shard_rows, 1U);
    manifest.rows = 0;
    EXPECT_THAT(complete_manifest(manifest).error().message, HasSubstr("rows is 0"));
}

}  // namespace
}  // namespace distilld

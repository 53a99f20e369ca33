#include "pipeline/store/store_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/store/store_checks.hpp"
#include "tests/unit/pipeline/store/store_fixture.hpp"

namespace distilld {
namespace {

using test::read_bytes;
using test::StoreData;
using test::TemporaryFolder;
using test::write_bytes;
using testing::HasSubstr;

std::unique_ptr<StoreWriter> writer_of(const TemporaryFolder& folder, StoreFormat format = StoreFormat::packed) {
    return open_store_writer(folder.path(), StoreData::manifest(format)).value();
}

TEST(StoreReader, SeesWhatIsSealedWhenItLooks) {
    const TemporaryFolder folder;
    const auto writer = writer_of(folder);
    const auto reader = open_store_reader(folder.path()).value();
    EXPECT_FALSE(reader->refresh().value());
    ASSERT_TRUE(StoreData::write(*writer, {3, 4}, 2));
    EXPECT_FALSE(reader->refresh().value()) << "nothing is sealed";
    ASSERT_TRUE(StoreData::write(*writer, {5}, 1));
    EXPECT_FALSE(reader->has(4));
    EXPECT_TRUE(reader->refresh().value());
    EXPECT_TRUE(reader->has(4));
    EXPECT_FALSE(reader->has(2));
    EXPECT_FALSE(reader->has(7));
    EXPECT_EQ(reader->sealed_rows(), 3U);
    EXPECT_FALSE(reader->refresh().value());
    EXPECT_TRUE(reader->read(StoreData::batch({5, 3})));
    EXPECT_THAT(reader->read(StoreData::batch({5, 2})).error().message,
                HasSubstr("row 2 is not in the store: shard-000000.safetensors is not sealed"));
}

TEST(StoreReader, ReadsWhatIsNotSealedWhenNobodyWrites) {
    const TemporaryFolder folder;
    auto writer = writer_of(folder);
    ASSERT_TRUE(StoreData::write(*writer, {4, 6, 0}, 1));
    const auto reader = open_store_reader(folder.path()).value();
    EXPECT_TRUE(reader->has_writer());
    EXPECT_TRUE(reader->has(6)) << "its shard is sealed";
    EXPECT_FALSE(reader->has(4)) << "a writer may be at it";
    writer.reset();
    EXPECT_TRUE(reader->refresh().value());
    EXPECT_FALSE(reader->refresh().value()) << "there is nothing more";
    EXPECT_FALSE(reader->has_writer());
    EXPECT_EQ(reader->sealed_rows(), 1U);
    EXPECT_EQ(reader->held_rows(), 3U);
    EXPECT_FALSE(reader->has(3));
    // Out of the file and, sealed, out of the shard it is the same.
    const auto unsealed = reader->read(StoreData::batch({4, 6, 0}));
    ASSERT_TRUE(unsealed) << unsealed.error().message;
    const auto before = test::bytes_of(*unsealed);
    writer = writer_of(folder);
    EXPECT_TRUE(reader->read(StoreData::batch({4})) && reader->has(4)) << "a writer that comes takes nothing away";
    ASSERT_TRUE(StoreData::write(*writer, {1, 2, 3, 5}, 2));
    EXPECT_TRUE(reader->refresh().value());
    EXPECT_EQ(reader->sealed_rows(), 7U);
    EXPECT_EQ(reader->held_rows(), 7U);
    EXPECT_EQ(test::bytes_of(reader->read(StoreData::batch({4, 6, 0})).value()), before);
}

TEST(StoreReader, ATornRowThatIsNotSealedIsMissing) {
    const TemporaryFolder folder;
    ASSERT_TRUE(StoreData::write(*writer_of(folder), {3, 4}, 1));
    const auto file = folder / "shard-000001.part";
    const std::string whole = read_bytes(file);
    write_bytes(file, whole.substr(0, whole.size() - 1));
    const auto reader = open_store_reader(folder.path()).value();
    EXPECT_TRUE(reader->has(3));
    EXPECT_FALSE(reader->has(4));
    EXPECT_EQ(reader->held_rows(), 1U);
    const auto verified = verify_store(folder.path()).value();
    EXPECT_EQ(verified.unsealed_rows, 1U);
    EXPECT_EQ(verified.dataset_rows, 7U);
    EXPECT_TRUE(verified.defects.empty());
}

TEST(StoreReader, SaysWhatIsNoStore) {
    const TemporaryFolder folder;
    EXPECT_FALSE(no_store_reason(folder.path() / "nope"));
    EXPECT_FALSE(no_store_reason(folder.path())) << "it may become one";
    write_bytes(folder / "lock", "");
    EXPECT_FALSE(no_store_reason(folder.path())) << "a writer has just begun";
    write_bytes(folder / "config.json", "{}");
    EXPECT_EQ(no_store_reason(folder.path()),
              folder.path().string() + " is not a store: it has no manifest.json, but config.json");
    EXPECT_EQ(open_store_reader(folder.path() / "nope").error().message,
              (folder.path() / "nope").string() + " is not a store: no such folder");
    EXPECT_EQ(open_store_writer(folder.path(), StoreData::manifest(StoreFormat::packed)).error().message,
              no_store_reason(folder.path()));
    EXPECT_FALSE(store_exists(folder.path()));
    const TemporaryFolder store;
    ASSERT_TRUE(StoreData::write(*writer_of(store), {6}, 1));
    write_bytes(store / "README.md", "");
    EXPECT_FALSE(no_store_reason(store.path())) << "what comes later does not matter";
}

TEST(StoreReader, LeavesALineThatIsBeingWritten) {
    const TemporaryFolder folder;
    ASSERT_TRUE(StoreData::write(*writer_of(folder), {6}, 1));
    const std::string line = read_bytes(folder / "shards.jsonl");
    write_bytes(folder / "shards.jsonl", line.substr(0, line.size() - 1));
    const auto reader = open_store_reader(folder.path()).value();
    EXPECT_FALSE(reader->has(6));
    write_bytes(folder / "shards.jsonl", line);
    EXPECT_TRUE(reader->refresh().value());
    EXPECT_TRUE(reader->has(6));
}

TEST(StoreReader, NamesARowThatIsDamaged) {
    for (const StoreFormat format : {StoreFormat::full, StoreFormat::packed, StoreFormat::sampled}) {
        const TemporaryFolder folder;
        ASSERT_TRUE(StoreData::write(*writer_of(folder, format), StoreData::all_rows(), 7));
        const auto file = folder / "shard-000001.safetensors";
        const std::string whole = read_bytes(file);
        // The last byte of the data is of the last row's mask: tensors lie by dtype, then by name.
        std::string damaged = whole;
        damaged.back() = static_cast<char>(damaged.back() ^ 4);
        write_bytes(file, damaged);
        const auto reader = open_store_reader(folder.path()).value();
        EXPECT_TRUE(reader->read(StoreData::batch({0, 3})));
        const auto got = reader->read(StoreData::batch({3, 4, 5}));
        ASSERT_FALSE(got) << to_string(format);
        EXPECT_EQ(got.error().kind, ErrorKind::io);
        EXPECT_THAT(got.error().message, HasSubstr("shard-000001.safetensors: row "));
        EXPECT_THAT(got.error().message, HasSubstr("is damaged"));
    }
}

TEST(StoreReader, F12AShardOfTheWrongSizeIsDamagedAndNotAbsent) {
    const TemporaryFolder folder;
    ASSERT_TRUE(StoreData::write(*writer_of(folder), StoreData::all_rows(), 7));
    const auto file = folder / "shard-000001.safetensors";
    const std::string whole = read_bytes(file);
    write_bytes(file, whole.substr(0, whole.size() - 1));
    const std::string defect = file.string() + " is damaged: it has " + std::to_string(whole.size() - 1) +
                               " bytes, and " + std::to_string(whole.size()) + " were sealed";
    const auto reader = open_store_reader(folder.path()).value();
    EXPECT_FALSE(reader->has(3));
    EXPECT_TRUE(reader->has(0));
    EXPECT_THAT(reader->damaged(), testing::ElementsAre(testing::Pair(1U, defect)));
    const auto got = reader->read(StoreData::batch({3}));
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().kind, ErrorKind::io);
    EXPECT_EQ(got.error().message, defect);
    EXPECT_THAT(verify_store(folder.path()).value().defects, testing::ElementsAre(defect));
    // Mended or lost, it is no longer.
    std::filesystem::remove(file);
    EXPECT_FALSE(reader->refresh().value());
    EXPECT_TRUE(reader->damaged().empty());
    EXPECT_FALSE(reader->has(3));
    const auto again = open_store_reader(folder.path()).value();
    EXPECT_TRUE(again->damaged().empty()) << "a lost shard is absent: a writer makes it anew";
    write_bytes(file, whole + "x");
    const auto longer = open_store_reader(folder.path()).value();
    EXPECT_EQ(longer->damaged().size(), 1U);
    write_bytes(file, whole);
    EXPECT_TRUE(longer->refresh().value());
    EXPECT_TRUE(longer->has(3));
    EXPECT_TRUE(longer->damaged().empty());
}

TEST(StoreReader, F12AWriterWritesAShardOfTheWrongSizeAgain) {
    const TemporaryFolder folder;
    ASSERT_TRUE(StoreData::write(*writer_of(folder), StoreData::all_rows(), 7));
    const auto file = folder / "shard-000001.safetensors";
    const std::string whole = read_bytes(file);
    write_bytes(file, whole.substr(0, whole.size() / 2));
    const auto reader = open_store_reader(folder.path()).value();
    ASSERT_EQ(reader->damaged().size(), 1U);
    {
        const auto writer = writer_of(folder);
        EXPECT_TRUE(writer->needs(3));
        EXPECT_FALSE(writer->needs(0));
        ASSERT_TRUE(StoreData::write(*writer, {3, 4, 5}, 3));
    }
    EXPECT_EQ(read_bytes(file), whole);
    EXPECT_TRUE(reader->refresh().value());
    EXPECT_TRUE(reader->has(3));
    EXPECT_TRUE(reader->damaged().empty());
}

/// Whatever a byte of a shard becomes, a reader does not crash on it, and no row that was changed is read.
TEST(StoreReader, IsSafeFromAnyByte) {
    const TemporaryFolder folder;
    ASSERT_TRUE(StoreData::write(*writer_of(folder, StoreFormat::topp), StoreData::all_rows(), 7));
    const auto file = folder / "shard-000000.safetensors";
    const std::string whole = read_bytes(file);
    const TokenBatch batch = StoreData::batch({0, 1, 2});
    const auto expected = test::bytes_of(open_store_reader(folder.path()).value()->read(batch).value());
    std::size_t refused = 0;
    for (std::size_t at = 0; at < whole.size(); ++at) {
        for (const unsigned mask : {0x01U, 0x80U}) {
            std::string damaged = whole;
            damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ mask);
            write_bytes(file, damaged);
            const auto reader = open_store_reader(folder.path()).value();
            const auto got = reader->read(batch);
            if (got) {
                EXPECT_EQ(test::bytes_of(*got), expected) << "byte " << at;
            } else {
                ++refused;
            }
        }
    }
    EXPECT_GT(refused, whole.size());
}

TEST(StoreReader, MakesABatchOfWhatIsStored) {
    const TemporaryFolder folder;
    ASSERT_TRUE(StoreData::write(*writer_of(folder), StoreData::all_rows(), 7));
    const auto reader = open_store_reader(folder.path()).value();
    const TokenBatch made = reader->batch_of({1, 4}).value();
    const TokenBatch real = StoreData::batch({1, 4});
    EXPECT_EQ(made.target_tokens, real.target_tokens);
    EXPECT_EQ(test::bytes_of(reader->read(made).value()), test::bytes_of(reader->read(real).value()));
}

TEST(StoreReader, NamesWhatIsNoStore) {
    const TemporaryFolder folder;
    EXPECT_THAT(open_store_reader(folder.path()).error().message,
                HasSubstr(" is not a store: it has no manifest.json"));
    write_bytes(folder / "manifest.json", "{\"version\":2}");
    EXPECT_THAT(open_store_reader(folder.path()).error().message, HasSubstr("manifest.json: "));
    write_bytes(folder / "manifest.json", "[]");
    EXPECT_THAT(open_store_reader(folder.path()).error().message, HasSubstr("not a JSON object"));
}

}  // namespace
}  // namespace distilld

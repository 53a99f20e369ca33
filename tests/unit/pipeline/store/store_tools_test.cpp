#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/store/divergence.hpp"
#include "pipeline/store/store_checks.hpp"
#include "pipeline/store/store_export.hpp"
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

void write_store(const std::filesystem::path& folder, StoreFormat format) {
    const auto writer = open_store_writer(folder, StoreData::manifest(format)).value();
    StoreData::write(*writer, StoreData::all_rows(), 3).value();
}

TEST(Divergence, IsThatOfTheDefinition) {
    // Teacher (0.5, 0.25, 0.125, 0.125); stored: 0.6 for token 0, 0.2 for token 1, 0.2 for the two others.
    const std::vector<float> logits{std::log(4.0F), std::log(2.0F), 0, 0};
    const std::vector<std::int32_t> ids{0, 1};
    const std::vector<float> values{std::log(0.6F), std::log(0.2F)};
    const StoredDistribution stored{ids, values, std::log(0.2F)};
    EXPECT_NEAR(kl_teacher_stored(logits, stored),
                0.5 * std::log(0.5 / 0.6) + 0.25 * std::log(0.25 / 0.2) + 0.25 * std::log(0.125 / 0.1), 1e-7);
    EXPECT_NEAR(kl_stored_teacher(logits, stored),
                0.6 * std::log(0.6 / 0.5) + 0.2 * std::log(0.2 / 0.25) + 0.2 * std::log(0.1 / 0.125), 1e-7);

    const StoredDistribution no_tail{ids, values, -std::numeric_limits<float>::infinity()};
    EXPECT_EQ(kl_teacher_stored(logits, no_tail), std::numeric_limits<double>::infinity());
    EXPECT_NEAR(kl_stored_teacher(logits, no_tail), 0.75 * std::log(0.75 / 0.5), 1e-7) << "0.25 · log 1 is 0";
}

TEST(StoreError, FallsWithTheEntriesThatAreKept) {
    const TemporaryFolder folder;
    write_store(folder / "full", StoreFormat::full);
    const auto full = open_store_reader(folder / "full").value();
    EXPECT_NEAR(measure_error(*full, *full, 100)->kl_teacher_stored, 0, 1e-9);

    double before = 1e9;
    for (const std::uint32_t k : {2U, 6U, 20U}) {
        StoreExport options;
        options.k = k;
        const auto to = folder / ("packed" + std::to_string(k));
        ASSERT_TRUE(export_store(*full, to, options));
        const auto packed = open_store_reader(to).value();
        const auto error = measure_error(*packed, *full, 100).value();
        EXPECT_EQ(error.tokens, 4U * 4 + 3U * 3);
        EXPECT_LT(error.kl_teacher_stored, before);
        EXPECT_GT(error.kl_teacher_stored, 0);
        before = error.kl_teacher_stored;
        EXPECT_THAT(measure_error(*full, *packed, 100).error().message, HasSubstr("its format is packed"));
    }
}

TEST(StoreExport, MakesTheShardsThatWouldHaveBeenWritten) {
    const TemporaryFolder folder;
    write_store(folder / "full", StoreFormat::full);
    write_store(folder / "topk", StoreFormat::topk);
    write_store(folder / "packed", StoreFormat::packed);
    const auto topk = open_store_reader(folder / "topk").value();
    StoreExport options;
    const auto done = export_store(*topk, folder / "exported", options);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->sealed_rows, StoreData::kRows);
    // Other shards (the size is chosen anew), the same targets.
    const TokenBatch batch = StoreData::batch(StoreData::all_rows());
    EXPECT_EQ(test::bytes_of(open_store_reader(folder / "exported").value()->read(batch).value()),
              test::bytes_of(open_store_reader(folder / "packed").value()->read(batch).value()));

    const auto refused = [&](StoreReader& from, StoreFormat format, std::uint32_t k) {
        StoreExport wanted;
        wanted.format = format;
        wanted.k = k;
        const auto result = export_store(from, folder / "refused", wanted);
        EXPECT_FALSE(store_exists(folder / "refused"));
        return result ? std::string("taken") : result.error().message;
    };
    EXPECT_THAT(refused(*topk, StoreFormat::sampled, 0), HasSubstr("made of logits"));
    EXPECT_THAT(refused(*topk, StoreFormat::packed, 7), HasSubstr("it has 6 entries per position, 7 are wanted"));
}

TEST(StoreExport, WritesLinesForPeople) {
    const TemporaryFolder folder;
    write_store(folder / "s", StoreFormat::sampled);
    const auto reader = open_store_reader(folder / "s").value();
    std::vector<std::string> lines;
    ASSERT_TRUE(write_store_lines(*reader, 1, 2, [&](const std::string& line) -> Result<void> {
        lines.push_back(line);
        return {};
    }));
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_THAT(lines.front(), testing::StartsWith(R"({"row":1,"position":1,"ids":[)"));
    EXPECT_THAT(lines.front(), HasSubstr("null]"));
    EXPECT_THAT(lines.front(), testing::EndsWith("\"tail\":null}\n"));
}

TEST(StoreVerify, NamesFileAndRowOfWhatIsWrong) {
    const TemporaryFolder folder;
    write_store(folder.path(), StoreFormat::packed);
    const auto whole = verify_store(folder.path()).value();
    EXPECT_THAT(whole.defects, IsEmpty());
    EXPECT_THAT(whole.foreign, IsEmpty());
    EXPECT_EQ(whole.rows, StoreData::kRows);
    EXPECT_EQ(whole.tokens, 4U * 4 + 3U * 3);

    const std::string second = read_bytes(folder / "shard-000001.safetensors");
    std::string damaged = second;
    damaged.back() = static_cast<char>(damaged.back() ^ 4);
    write_bytes(folder / "shard-000001.safetensors", damaged);
    std::filesystem::remove(folder / "shard-000002.safetensors");
    write_bytes(folder / "shard-000009.part", "?");
    write_bytes(folder / "shard-000002.part", "");
    write_bytes(folder / "notes.txt", "mine");
    const auto report = verify_store(folder.path()).value();
    ASSERT_EQ(report.defects.size(), 2U);
    EXPECT_THAT(report.defects[0], HasSubstr("shard-000001.safetensors: row 5 is damaged"));
    EXPECT_THAT(report.defects[1], HasSubstr("shard-000002.safetensors: is missing"));
    EXPECT_THAT(report.foreign, ElementsAre((folder / "notes.txt").string(), (folder / "shard-000009.part").string()));
    EXPECT_THAT(report.unsealed, ElementsAre((folder / "shard-000002.part").string()));
    EXPECT_EQ(report.rows, 5U);

    // A byte that belongs to no row.
    std::string header = second;
    header[header.find("distilld-store")] = 'D';
    write_bytes(folder / "shard-000001.safetensors", header);
    EXPECT_THAT(verify_store(folder.path())->defects[0], HasSubstr("its SHA-256 does not match"));
}

}  // namespace
}  // namespace distilld

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/half_float.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kRows = 5;

StoreManifest manifest(StoreValues values) {
    StoreManifest manifest;
    manifest.format = StoreFormat::tensors;
    manifest.values = values;
    manifest.tensors = {{"y", {2}}, {"loss", {}}};
    manifest.rows = kRows;
    manifest.sequence_length = 1;
    manifest.shard_rows = 3;
    manifest.dataset_hash = "of the data";
    return complete_manifest(std::move(manifest)).value();
}

TokenBatch batch(std::vector<std::uint64_t> rows) {
    TokenBatch batch;
    batch.rows = static_cast<std::uint32_t>(rows.size());
    batch.columns = 1;
    batch.labels.assign(rows.size(), 0);
    batch.row_ids = std::move(rows);
    return batch;
}

/// Row r has y = (r, −r / 3) and loss = 10·r.
TeacherTargets targets(const TokenBatch& batch) {
    struct Arrays {
        std::vector<float> y;
        std::vector<double> loss;
    };
    auto arrays = std::make_shared<Arrays>();
    for (const std::uint64_t row : batch.row_ids) {
        const auto number = static_cast<float>(row);
        arrays->y.insert(arrays->y.end(), {number, -number / 3});
        arrays->loss.push_back(10.0 * static_cast<double>(row));
    }
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::tensors;
    targets.rows = batch.rows;
    targets.columns = 1;
    targets.tensors = {{"loss", {}, {ElementType::f64, std::as_bytes(std::span(arrays->loss))}},
                       {"y", {2}, {ElementType::f32, std::as_bytes(std::span(arrays->y))}}};
    targets.owner = std::move(arrays);
    return targets;
}

std::vector<float> values(const TeacherTargets& targets, const char* name) {
    std::vector<float> found;
    const SampleTensor* tensor = find_tensor(targets.tensors, name);
    for (std::size_t i = 0; i < tensor->values.bytes.size() / element_size(tensor->values.type); ++i) {
        found.push_back(element_as_float(tensor->values, i));
    }
    return found;
}

std::string refusal(const StoreManifest& manifest, const TokenBatch& batch, const TeacherTargets& targets) {
    const auto rows = RowCodec(manifest).encode(batch, targets);
    return rows ? "" : rows.error().message;
}

TEST(TensorFormat, RoundsToTheTypeOfTheStore) {
    const TokenBatch asked = batch({4, 1});
    TargetBuffers buffers;
    for (const StoreValues kept : {StoreValues::f32, StoreValues::f16, StoreValues::bf16}) {
        const RowCodec codec(manifest(kept));
        const auto rows = codec.encode(asked, targets(asked)).value();
        EXPECT_EQ(codec.find_defect(view_of(rows.front())), std::nullopt);
        const auto got = codec.decode(asked, rows, buffers).value();
        ASSERT_EQ(got.kind, TeacherTargets::Kind::tensors);
        ASSERT_EQ(got.tensors.size(), 2U);
        EXPECT_THAT(got.tensors[0].sample_shape, ElementsAre(2));
        const auto rounded = [kept](float value) {
            return kept == StoreValues::f32 ? value
                                            : (kept == StoreValues::f16 ? half_to_float(float_to_half(value))
                                                                        : bfloat16_to_float(float_to_bfloat16(value)));
        };
        EXPECT_THAT(values(got, "y"), ElementsAre(4, rounded(-4.0F / 3), 1, rounded(-1.0F / 3)));
        EXPECT_THAT(values(got, "loss"), ElementsAre(40, 10));
    }
}

TEST(TensorFormat, WritesAndReadsShards) {
    const test::TemporaryFolder folder;
    {
        auto writer = open_store_writer(folder.path() / "store", manifest(StoreValues::bf16)).value();
        for (const std::vector<std::uint64_t>& rows : {std::vector<std::uint64_t>{4, 0}, {1, 2}, {3}}) {
            ASSERT_TRUE(writer->add(batch(rows), targets(batch(rows))));
        }
        EXPECT_EQ(writer->progress().sealed_rows, kRows);
    }
    const auto reader = open_store_reader(folder.path() / "store").value();
    EXPECT_EQ(reader->manifest().tensors.front().name, "y");
    EXPECT_THAT(values(reader->read(batch({3, 0})).value(), "loss"), ElementsAre(30, 0));
}

TEST(TensorFormat, RefusesWhatItCannotKeep) {
    const TokenBatch asked = batch({2});
    TeacherTargets other = targets(asked);
    other.tensors[1].sample_shape = {1, 2};
    EXPECT_THAT(refusal(manifest(StoreValues::f32), asked, other), HasSubstr("output y does not have the shape"));
    other.tensors.pop_back();
    EXPECT_THAT(refusal(manifest(StoreValues::f32), asked, other), HasSubstr("output y is missing"));
    TeacherTargets large = targets(asked);
    const std::vector<float> numbers{1, 70000};
    large.tensors[1].values.bytes = std::as_bytes(std::span(numbers));
    EXPECT_THAT(refusal(manifest(StoreValues::f16), asked, large),
                HasSubstr("row 2: element 1 of output y is 70000.000000, which is too large for the store's values"));
    EXPECT_EQ(refusal(manifest(StoreValues::bf16), asked, large), "");
    large.kind = TeacherTargets::Kind::topk;
    EXPECT_THAT(refusal(manifest(StoreValues::f16), asked, large), HasSubstr("the teacher gives other targets"));
    EXPECT_THAT(refusal(manifest(StoreValues::f16), batch({9}), targets(batch({9}))), HasSubstr("outside the dataset"));
}

TEST(TensorFormat, ChecksTheManifestBeforeItIsUsed) {
    const auto reason = [](std::vector<StoredTensor> tensors, StoreValues values = StoreValues::f32) {
        StoreManifest wrong = manifest(StoreValues::f32);
        wrong.tensors = std::move(tensors);
        wrong.values = values;
        const auto completed = complete_manifest(std::move(wrong));
        return completed ? "" : completed.error().message;
    };
    EXPECT_THAT(reason({}), HasSubstr("tensors is empty"));
    EXPECT_THAT(reason({{"y", {2}}, {"y", {2}}}), HasSubstr("different names"));
    EXPECT_THAT(reason({{"y", {-1}}}), HasSubstr("of size -1"));
    EXPECT_THAT(reason({{"y", {1LL << 40, 1LL << 40}}}), HasSubstr("2^31 elements"));
    EXPECT_THAT(reason({{"y", {2}}}, StoreValues::u8), HasSubstr("f16 or f32 or bf16 with format tensors"));
}

}  // namespace
}  // namespace distilld

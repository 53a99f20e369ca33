#include "server/worker/store_plan.hpp"

#include <gmock/gmock.h>

#include "tests/support/topk_teacher.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TEST(StorePlan, TheSpecNamesTheFormatsThatThereAre) {
    std::vector<std::string> formats{"auto"};
    std::vector<std::string> values;
    for (const auto& name : kEnumNames<StoreFormat>) {
        if (name.value != StoreFormat::tensors) {  // which the data implies
            formats.emplace_back(name.text);
        }
    }
    for (const auto& name : kEnumNames<StoreValues>) {
        values.emplace_back(name.text);
    }
    EXPECT_THAT(kStoreFormatChoices, ElementsAreArray(formats));
    EXPECT_THAT(kStoreValuesChoices, ElementsAreArray(values));
}

TEST(StorePlan, OutputsForSamplesAreKeptByName) {
    const test::NumberedRows rows(9);
    TeacherInfo info;
    info.kind = TeacherTargets::Kind::tensors;
    info.tensors = {{"y", {3, 2}, {}}, {"h", {}, {}}};
    const StoreManifest manifest = wanted_manifest(TeacherSpec(), StoredData{&rows, 1, "", 0}, info);
    EXPECT_EQ(manifest.format, StoreFormat::tensors);
    ASSERT_EQ(manifest.tensors.size(), 2U);
    EXPECT_EQ(manifest.tensors[0].name, "y");
    EXPECT_EQ(element_count(manifest.tensors[0]), 6U);
    EXPECT_EQ(element_count(manifest.tensors[1]), 1U);
}

TEST(StorePlan, AutoKeepsAllThatTheTeacherSays) {
    const test::NumberedRows rows(9);
    const StoredData data{&rows, 4, "tokenizer", 7};
    TeacherSpec spec;
    TeacherInfo info;
    info.fingerprint = "who";
    const StoreManifest logits = wanted_manifest(spec, data, info);
    EXPECT_EQ(logits.format, StoreFormat::full);
    EXPECT_EQ(logits.vocabulary, 7U) << "the student's, where the teacher does not tell";
    spec.top_k = 16;
    info.top_k = 16;
    info.vocabulary_size = 12;
    const StoreManifest entries = wanted_manifest(spec, data, info);
    EXPECT_EQ(entries.format, StoreFormat::topk);
    EXPECT_EQ(entries.values, StoreValues::f16);
    EXPECT_EQ(entries.k, 16U);
    EXPECT_EQ(entries.vocabulary, 12U);
    EXPECT_EQ(entries.rows, 9U);
    EXPECT_EQ(entries.sequence_length, 4U);
    EXPECT_EQ(entries.dataset_hash, "numbered");
    EXPECT_EQ(entries.tokenizer_hash, "tokenizer");
    EXPECT_EQ(entries.teacher, "who");
    EXPECT_TRUE(complete_manifest(entries));
    EXPECT_TRUE(check_store(complete_manifest(entries).value(), wish_of(spec, data)));
}

TEST(StorePlan, ANamedFormatHoldsForTheStoreThatIsThere) {
    TeacherSpec spec;
    spec.store = "answers";
    const StoreManifest stored = test::topk_manifest(9, 4);
    EXPECT_TRUE(check_stored_format(stored, spec));
    spec.store_format = "topk";
    EXPECT_TRUE(check_stored_format(stored, spec));
    spec.store_format = "packed";
    EXPECT_THAT(check_stored_format(stored, spec).error().message,
                HasSubstr("/teacher/store_format: is packed, but the store in answers is topk"));
}

}  // namespace
}  // namespace distilld

#include "pipeline/data/tensor_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/safetensors_header.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Given {
    std::string name;
    const char* dtype;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

/// F32 values, or bytes of them as I32.
fs::path write(const fs::path& path, const std::vector<Given>& tensors) {
    SafetensorsHeader header;
    for (const Given& given : tensors) {
        header.tensors.push_back({given.name, find_safetensors_dtype(given.dtype), given.shape});
    }
    std::ofstream file(path, std::ios::binary);
    file << write_safetensors_header(header, path).value();
    for (const SafetensorsTensor& tensor : header.tensors) {
        for (const Given& given : tensors) {
            if (given.name == tensor.name) {
                file.write(reinterpret_cast<const char*>(given.values.data()),
                           static_cast<std::streamsize>(given.values.size() * sizeof(float)));
            }
        }
    }
    return path;
}

class TensorDatasetTest : public ::testing::Test {
  protected:
    Result<std::shared_ptr<const Dataset>> load(const std::vector<fs::path>& files) {
        return load_tensor_dataset(files, [] { return false; });
    }
    std::string refusal(const std::vector<Given>& second) {
        const auto loaded = load({write(at("a"), {{"x", "F32", {1, 2}, {1, 2}}}), write(at("b"), second)});
        return loaded ? "" : loaded.error().message;
    }
    fs::path at(const std::string& name) { return folder_.path() / name; }

    test::TemporaryFolder folder_;
};

std::vector<float> floats(const SampleTensor& tensor) {
    std::vector<float> values(tensor.values.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.values.bytes.data(), tensor.values.bytes.size());
    return values;
}

TEST_F(TensorDatasetTest, ABatchHasTheSamplesOfItsRowsFromAllFiles) {
    const auto data = load({write(at("a"), {{"x", "F32", {2, 2}, {1, 2, 3, 4}}, {"s", "F32", {2}, {7, 8}}}),
                            write(at("b"), {{"x", "F32", {1, 2}, {5, 6}}, {"s", "F32", {1}, {9}}})});
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ((*data)->row_count(), 3U);
    const TokenBatch batch = (*data)->batch(11, {2, 0, 2});
    EXPECT_EQ(batch.number, 11U);
    EXPECT_EQ(batch.rows, 3U);
    EXPECT_EQ(batch.columns, 1U);
    EXPECT_EQ(batch.target_tokens, 3U);
    const SampleTensor* x = find_tensor(batch.tensors, "x");
    ASSERT_NE(x, nullptr);
    EXPECT_THAT(x->sample_shape, ElementsAre(2));
    EXPECT_THAT(floats(*x), ElementsAre(5, 6, 1, 2, 5, 6));
    const SampleTensor* s = find_tensor(batch.tensors, "s");
    ASSERT_NE(s, nullptr);
    EXPECT_TRUE(s->sample_shape.empty());
    EXPECT_THAT(floats(*s), ElementsAre(9, 7, 9));
    EXPECT_EQ(find_tensor(batch.tensors, "y"), nullptr);
    EXPECT_THROW(static_cast<void>((*data)->batch(0, {3})), std::out_of_range);
}

TEST_F(TensorDatasetTest, TheHashIsOfTheSamplesNotOfTheFiles) {
    const auto whole = load({write(at("w"), {{"x", "F32", {3, 1}, {1, 2, 3}}})});
    const auto parts =
        load({write(at("a"), {{"x", "F32", {2, 1}, {1, 2}}}), write(at("b"), {{"x", "F32", {1, 1}, {3}}})});
    const auto other = load({write(at("o"), {{"x", "F32", {3, 1}, {1, 2, 4}}})});
    const auto integers = load({write(at("i"), {{"x", "I32", {3, 1}, {1, 2, 3}}})});
    const auto renamed = load({write(at("r"), {{"y", "F32", {3, 1}, {1, 2, 3}}})});
    const auto flat = load({write(at("f"), {{"x", "F32", {3}, {1, 2, 3}}})});
    EXPECT_EQ((*whole)->hash(), (*parts)->hash());
    for (const auto& one : {other, integers, renamed, flat}) {
        EXPECT_NE((*whole)->hash(), (*one)->hash());
    }
}

TEST_F(TensorDatasetTest, AFileThatDoesNotFitIsNamedWithItsTensor) {
    EXPECT_THAT(refusal({{"x", "F32", {1, 3}, {1, 2, 3}}}),
                HasSubstr("b: tensor \"x\" has samples of F32 [3], in the first file they are F32 [2]"));
    EXPECT_THAT(refusal({{"x", "I32", {1, 2}, {1, 2}}}),
                HasSubstr("samples of I32 [2], in the first file they are F32"));
    EXPECT_THAT(refusal({{"y", "F32", {1, 2}, {1, 2}}}), HasSubstr("b: tensor \"y\" is not in the first file"));
    EXPECT_THAT(refusal({}), HasSubstr("b: has no tensors"));
    EXPECT_THAT(refusal({{"x", "F32", {}, {1}}}), HasSubstr("its first dimension must count the samples"));
    EXPECT_THAT(refusal({{"x", "F32", {0, 2}, {}}}), HasSubstr("its first dimension must count the samples"));
    EXPECT_THAT(refusal({{"x", "I8", {4, 1}, {1}}}), HasSubstr("is I8, which is not supported"));
    const auto uneven = load({write(at("u"), {{"x", "F32", {2}, {1, 2}}, {"y", "F32", {1}, {3}}})});
    EXPECT_THAT(uneven.error().message, HasSubstr("samples, another tensor has"));
    const auto missing = load({at("missing")});
    EXPECT_THAT(missing.error().message, HasSubstr("missing"));
    std::ofstream(at("text")) << "not a tensor in sight";
    EXPECT_FALSE(load({at("text")}));
}

TEST_F(TensorDatasetTest, ReadingCanBeCancelled) {
    const std::vector<fs::path> files{write(at("a"), {{"x", "F32", {1}, {1}}})};
    const auto loaded = load_tensor_dataset(files, [] { return true; });
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().kind, ErrorKind::cancelled);
}

}  // namespace
}  // namespace distilld

#include "models/weights/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace distilld::models {
namespace {

using test::file_count;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

using testing::ElementsAre;
using testing::HasSubstr;

std::string length_bytes(std::uint64_t length) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) {
        bytes += static_cast<char>(length >> (8 * i) & 0xFFU);
    }
    return bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
    return length_bytes(header.size()) + header + data;
}

/// The message of opening a file with these bytes; empty when it opens.
std::string open_error(const std::string& bytes) {
    const TemporaryFolder folder;
    write_bytes(folder / "broken.safetensors", bytes);
    const auto file = SafetensorsFile::open(folder / "broken.safetensors");
    if (file) {
        return {};
    }
    EXPECT_EQ(file.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(file.error().message, HasSubstr("broken.safetensors: "));
    return file.error().message;
}

TEST(Safetensors, RoundTripsEveryDtype) {
    const TemporaryFolder folder;
    const auto path = folder / "all.safetensors";
    NamedTensors tensors;
    for (const auto type : {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kInt64, torch::kInt32,
                            torch::kInt16, torch::kInt8, torch::kUInt8, torch::kBool}) {
        tensors.push_back({c10::toString(type), (torch::arange(15).reshape({3, 5}) * 37 % 11).to(type)});
    }
    tensors.push_back({"scalar", torch::tensor(2.5F)});
    tensors.push_back({"empty", torch::zeros({0, 7})});
    tensors.push_back({"transposed", torch::arange(6.0F).reshape({2, 3}).t()});
    ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}, {"note", "a \"quoted\" ü"}}));

    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->names().size(), tensors.size());
    EXPECT_EQ(file->metadata().at("note"), "a \"quoted\" ü");
    for (const auto& [name, tensor] : tensors) {
        ASSERT_TRUE(file->contains(name));
        const auto read = file->tensor(name);
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_EQ(read->scalar_type(), tensor.scalar_type()) << name;
        EXPECT_TRUE(torch::equal(*read, tensor)) << name;
    }
    EXPECT_FALSE(file->contains("absent"));
    EXPECT_THAT(file->tensor("absent").error().message, HasSubstr("has no tensor absent"));
}

TEST(Safetensors, BytesAreTheFormatsAndDoNotDependOnOrder) {
    const TemporaryFolder folder;
    const auto a = torch::tensor({1.0F, 2.0F});
    const auto b = torch::tensor({1}, torch::kUInt8);
    ASSERT_TRUE(write_safetensors(folder / "1", {{"b", b}, {"a", a}}, {{"format", "pt"}}));
    ASSERT_TRUE(write_safetensors(folder / "2", {{"a", a}, {"b", b}}, {{"format", "pt"}}));
    const auto bytes = read_bytes(folder / "1");
    EXPECT_EQ(bytes, read_bytes(folder / "2"));
    std::string header = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
    header.append((8 - header.size() % 8) % 8, ' ');
    using namespace std::string_literals;
    EXPECT_EQ(bytes, file_of(header, "\0\0\x80\x3f\0\0\0\x40\x01"s));
    EXPECT_EQ(file_count(folder.path()), 2U);
}

TEST(Safetensors, ReadsDataInItsOwnOrder) {
    const TemporaryFolder folder;
    const std::string header = R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                               R"("none":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},)"
                               R"("a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})";
    write_bytes(folder / "f", file_of(header, "\x05\x06\x07"));
    const auto file = SafetensorsFile::open(folder / "f");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_THAT(file->names(), ElementsAre("z", "none", "a"));
    EXPECT_EQ(file->tensor("a")->item<int>(), 7);
    EXPECT_EQ(file->tensor("none")->numel(), 0);
}

TEST(Safetensors, RefusesEveryTruncation) {
    const TemporaryFolder folder;
    ASSERT_TRUE(write_safetensors(folder / "whole", {{"a", torch::ones({3})}, {"b", torch::ones({2, 2})}}));
    const auto bytes = read_bytes(folder / "whole");
    ASSERT_TRUE(open_error(bytes).empty());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        EXPECT_FALSE(open_error(bytes.substr(0, length)).empty()) << "cut to " << length << " bytes";
    }
    EXPECT_THAT(open_error(""), HasSubstr("too short for the header length"));
    EXPECT_THAT(open_error(bytes.substr(0, 20)), HasSubstr("truncated in the header"));
    EXPECT_THAT(open_error(bytes.substr(0, bytes.size() - 1)), HasSubstr("truncated: tensor b"));
    EXPECT_THAT(open_error(bytes + "x"), HasSubstr("1 bytes after the last tensor"));
}

TEST(Safetensors, RefusesAFileThatShrinksAfterOpening) {
    const TemporaryFolder folder;
    ASSERT_TRUE(write_safetensors(folder / "f", {{"a", torch::ones({64})}}));
    const auto file = SafetensorsFile::open(folder / "f");
    ASSERT_TRUE(file);
    std::filesystem::resize_file(folder / "f", std::filesystem::file_size(folder / "f") - 4);
    EXPECT_THAT(file->tensor("a").error().message, HasSubstr("cannot read tensor a: the file has become shorter"));
}

TEST(Safetensors, RefusesHugeHeadersBeforeReadingThem) {
    EXPECT_THAT(open_error(length_bytes(100'000'001) + "{}"), HasSubstr("claims a header of 100000001 bytes"));
    EXPECT_THAT(open_error(length_bytes(UINT64_MAX) + "{}"), HasSubstr("claims a header of"));
    EXPECT_THAT(open_error(length_bytes(99'999'999) + "{}"), HasSubstr("truncated in the header"));
}

TEST(Safetensors, RefusesBadHeaders) {
    const auto error = [](const std::string& header, const std::string& data = {}) {
        return open_error(file_of(header, data));
    };
    EXPECT_THAT(error("{\"a\":"), HasSubstr("not JSON"));
    EXPECT_THAT(error("[]"), HasSubstr("not a JSON object"));
    EXPECT_THAT(error(""), HasSubstr("not JSON"));
    EXPECT_THAT(error(std::string(5000, '[')), HasSubstr("not JSON"));
    EXPECT_THAT(error(R"({"__metadata__":3})"), HasSubstr("__metadata__ is not an object"));
    EXPECT_THAT(error(R"({"__metadata__":{"a":3}})"), HasSubstr("__metadata__.a is not a string"));
    EXPECT_THAT(error(R"({"a":3})"), HasSubstr("tensor a is not an object"));
    EXPECT_THAT(error(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", "x"), HasSubstr("tensor a has no dtype"));
    EXPECT_THAT(error(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "x"),
                HasSubstr("dtype F8_E4M3, which is not supported"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x"), HasSubstr("list of sizes"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", "x"), HasSubstr("list of sizes"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x"), HasSubstr("no valid shape"));
    EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
                HasSubstr("too large"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[1]}})", "x"), HasSubstr("no data_offsets"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "x"), HasSubstr("not a range"));
    EXPECT_THAT(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}})", "xyz"),
                HasSubstr("holds 3 bytes where its shape and dtype need 4"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                      "xyz"),
                HasSubstr("tensor b overlaps"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                      "xyz"),
                HasSubstr("a gap of 1 bytes before tensor b"));
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "x"),
                HasSubstr("truncated: tensor a ends at data byte 9"));
    // The second of two equal names hides the first, whose bytes then belong to nobody.
    EXPECT_THAT(error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      "xy"),
                HasSubstr("a gap of 1 bytes before tensor a"));
}

TEST(Safetensors, RefusesABoolThatIsNeither) {
    const TemporaryFolder folder;
    write_bytes(folder / "f", file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\x02"));
    EXPECT_THAT(SafetensorsFile::open(folder / "f").value().tensor("a").error().message, HasSubstr("neither 0 nor 1"));
}

TEST(Safetensors, RefusesWhatItCannotRead) {
    const TemporaryFolder folder;
    const auto absent = SafetensorsFile::open(folder / "absent");
    EXPECT_EQ(absent.error().kind, ErrorKind::io);
    EXPECT_THAT(absent.error().message, HasSubstr("absent: cannot open"));
    EXPECT_THAT(SafetensorsFile::open(folder.path()).error().message, HasSubstr("is a folder"));
}

TEST(Safetensors, RefusesToWriteDuplicatesAndStrangeDtypes) {
    const TemporaryFolder folder;
    const auto one = torch::ones({1});
    EXPECT_THAT(write_safetensors(folder / "f", {{"a", one}, {"a", one}}).error().message, HasSubstr("name is taken"));
    EXPECT_THAT(write_safetensors(folder / "f", {{"c", one.to(torch::kComplexFloat)}}).error().message,
                HasSubstr("no safetensors name"));
    EXPECT_EQ(file_count(folder.path()), 0U);
}

}  // namespace
}  // namespace distilld::models

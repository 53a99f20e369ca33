#include "server/http/multipart_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace distilld::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Notes what it is given, parts one by one.
struct Notes final : MultipartHandler {
    Result<void> begin(const MultipartPart& part) override {
        parts.push_back(part.name + "|" + part.filename.value_or("-") + "|");
        return part.name == "refused" ? Result<void>(invalid_input("not this one")) : Result<void>();
    }
    Result<void> data(std::string_view bytes) override {
        EXPECT_FALSE(bytes.empty());
        parts.back() += bytes;
        return {};
    }
    Result<void> end() override {
        parts.back() += "|";
        return {};
    }
    std::vector<std::string> parts;
};

std::string part(const std::string& disposition, const std::string& body) {
    return "--b\r\nContent-Disposition: " + disposition + "\r\nContent-Type: text/plain\r\n\r\n" + body + "\r\n";
}

/// The error, or nothing.
std::string read(const std::string& form, Notes& notes, std::size_t piece) {
    MultipartReader reader("b", notes);
    for (std::size_t at = 0; at < form.size(); at += piece) {
        if (const auto fed = reader.feed(std::string_view(form).substr(at, piece)); !fed) {
            return fed.error().message;
        }
    }
    const auto whole = reader.finish();
    return whole ? "" : whole.error().message;
}

TEST(MultipartReader, ReadsAFormCutAnywhere) {
    const std::string body = "\r\n--c\r\n-- \r\n--\r\n\r\n--";  // what a boundary begins with
    const auto form = "preamble\r\n" + part(R"(form-data; name="purpose")", "fine-tune") +
                      part(R"(form-data; name="file"; filename="a \"b\".jsonl")", body) +
                      part(R"(form-data; name=empty; filename="%22.x")", "") + "--b--\r\nepilogue";
    for (std::size_t piece = 1; piece <= form.size(); ++piece) {
        Notes notes;
        EXPECT_EQ(read(form, notes, piece), "");
        EXPECT_THAT(notes.parts,
                    ElementsAre("purpose|-|fine-tune|", "file|a \"b\".jsonl|" + body + "|", "empty|\".x||"));
    }
}

TEST(MultipartReader, SaysWhatIsWrong) {
    Notes notes;
    EXPECT_THAT(read(part(R"(form-data; name="a")", "x"), notes, 7), HasSubstr("breaks off"));
    EXPECT_THAT(read("", notes, 7), HasSubstr("breaks off"));
    EXPECT_THAT(read("--bc\r\n\r\n", notes, 7), HasSubstr("end of its line"));
    EXPECT_THAT(read("--b\r\nX: y\r\n\r\nx\r\n--b--", notes, 7), HasSubstr("Content-Disposition"));
    EXPECT_THAT(read("--b\r\n\r\nx\r\n--b--", notes, 7), HasSubstr("Content-Disposition"));
    EXPECT_THAT(read(part("form-data", "x"), notes, 7), HasSubstr("Content-Disposition"));
    EXPECT_THAT(read(part(R"(attachment; name="a")", "x"), notes, 7), HasSubstr("Content-Disposition"));
    EXPECT_THAT(read(part(R"(form-data; name="refused")", "x"), notes, 7), HasSubstr("not this one"));
    EXPECT_THAT(read("--b\r\n" + std::string(MultipartReader::kMaxHeadBytes + 9, 'x'), notes, 100),
                HasSubstr("head of a part"));
    std::string many;
    for (std::size_t i = 0; i <= MultipartReader::kMaxParts; ++i) {
        many += part(R"(form-data; name="a")", "x");
    }
    EXPECT_THAT(read(many, notes, 100), HasSubstr("more than 32 parts"));
}

TEST(MultipartReader, FindsTheBoundary) {
    EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=abc").value(), "abc");
    EXPECT_EQ(multipart_boundary("Multipart/Form-Data; charset=x; Boundary=\"a;b\"").value(), "a;b");
    for (const auto* wrong : {"", "application/json", "multipart/form-data",
                              "multipart/form-data; boundary=", "multipart/mixed; boundary=a"}) {
        EXPECT_FALSE(multipart_boundary(wrong)) << wrong;
    }
    EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'a')));
}

}  // namespace
}  // namespace distilld::http

#include "pipeline/data/jsonl_document.hpp"

#include <gmock/gmock.h>

#include <string>

#include "pipeline/data/prompt_completion.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

Document read(std::string line, const DatasetOptions& options) {
    const auto tokenizer = make_byte_tokenizer();
    const auto parser = make_document_parser(tokenizer.get(), options);
    const std::size_t length = line.size();
    line.resize(length + kDocumentPadding);
    Document document;
    const Result<void> parsed = parser->parse(std::string_view(line).substr(0, length), "data.jsonl", document);
    EXPECT_TRUE(parsed) << parsed.error().message;
    return document;
}

TEST(JsonlDocument, AnAlpacaRowIsThePromptAndCompletionThatItStandsFor) {
    struct Case {
        const char* line;
        const char* instruction;
        const char* input;
        const char* output;
    };
    const Case cases[] = {
        {R"({"instruction":"Say b.","input":"","output":"b","system":"","history":[]})", "Say b.", "", "b"},
        {R"({"instruction":"Say it.","input":"c","output":"c","history":null})", "Say it.", "c", "c"},
        {R"({"output":"d","instruction":"Say d.","input":null})", "Say d.", "", "d"},
    };
    DatasetOptions options;
    for (const bool completion_only : {true, false}) {
        options.completion_only_loss = completion_only;
        for (const Case& test : cases) {
            const Document document = read(test.line, options);
            Document expected;
            encode_prompt_completion(*make_byte_tokenizer(), alpaca_prompt(test.instruction, test.input), test.output,
                                     completion_only, expected);
            EXPECT_THAT(document.ids, ElementsAreArray(expected.ids)) << test.line;
            EXPECT_THAT(document.labels, ElementsAreArray(expected.labels)) << test.line;
            EXPECT_EQ(document.has_labels, completion_only);
            EXPECT_TRUE(document.from_text);
        }
    }
}

TEST(JsonlDocument, FieldsOfAlpacaAndShareGptBesideAnotherFormAreIgnored) {
    const char* others = R"("instruction":1,"output":"d","conversations":[],"history":[0]})";
    EXPECT_THAT(read(R"({"text":"ab",)" + std::string(others), {}).ids, ElementsAre('a', 'b'));
    EXPECT_THAT(read(R"({"prompt":"a","completion":"b",)" + std::string(others), {}).ids, ElementsAre('a', 'b', 256));
    EXPECT_THAT(read(R"({"input_ids":[1,2],)" + std::string(others), {}).ids, ElementsAre(1, 2));
}

TEST(JsonlDocument, APromptIsReadAlone) {
    DatasetOptions options;
    options.prompts = true;
    options.vocabulary_size = 257;
    const Document text = read(R"({"prompt":"ab","completion":"c","labels":[1]})", options);
    EXPECT_THAT(text.ids, ElementsAre('a', 'b', 'b')) << "the last one is only a target";
    EXPECT_THAT(text.labels, ElementsAre(kIgnoredLabel, kIgnoredLabel, 'b'));
    EXPECT_THAT(read(R"({"input_ids":[5]})", options).ids, ElementsAre(5, 5));
    const auto refusal = [&options](std::string line) {
        const auto tokenizer = make_byte_tokenizer();
        const auto parser = make_document_parser(tokenizer.get(), options);
        const std::size_t length = line.size();
        line.resize(length + kDocumentPadding);
        Document document;
        const Result<void> parsed = parser->parse(std::string_view(line).substr(0, length), "data.jsonl", document);
        return parsed ? std::string() : parsed.error().message;
    };
    const std::string alpaca = alpaca_prompt("Say a.", "a");
    const Document instruction = read(R"({"instruction":"Say a.","input":"a"})", options);
    EXPECT_EQ(std::string(instruction.ids.begin(), instruction.ids.end()), alpaca + alpaca.back());
    for (const char* line : {R"({"text":"a"})", R"({"prompt":"a","input_ids":[1]})"}) {
        EXPECT_THAT(refusal(line), HasSubstr("is not one prompt: ")) << line;
    }
    EXPECT_THAT(refusal(R"({"messages":[]})"), HasSubstr(" --prompts data.jsonl data.ids.jsonl"));
    EXPECT_THAT(refusal(R"({"prompt":""})"), HasSubstr("has an empty prompt"));
    EXPECT_THAT(refusal(R"({"input_ids":[257]})"), HasSubstr("outside the vocabulary of 257"));
}

}  // namespace
}  // namespace distilld

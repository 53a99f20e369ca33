#include "pipeline/data/tokenizer/byte_tokenizer.hpp"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "pipeline/data/dataset.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

TEST(ByteTokenizer, GivesEachByteItsOwnValue) {
    const auto tokenizer = make_byte_tokenizer();
    std::string text;
    Ids expected;
    for (int byte = 0; byte < 256; ++byte) {
        text.push_back(static_cast<char>(byte));
        expected.push_back(byte);
    }
    EXPECT_EQ(tokenizer->encode(text), expected);
    EXPECT_EQ(tokenizer->decode(expected), text);
    EXPECT_EQ(tokenizer->vocabulary_size(), 257U);
    EXPECT_EQ(tokenizer->end_of_text(), 256);
    EXPECT_TRUE(tokenizer->encode("").empty());
}

TEST(ByteTokenizer, TakesTheEndOfTextOutOfTheText) {
    const auto tokenizer = make_byte_tokenizer();
    EXPECT_THAT(tokenizer->encode("a<|endoftext|>b"), ElementsAre('a', 256, 'b'));
    EXPECT_THAT(tokenizer->encode("<|endoftext|>"), ElementsAre(256));
    EXPECT_THAT(tokenizer->encode("<|endoftext|><|endoftext|>"), ElementsAre(256, 256));
    EXPECT_THAT(tokenizer->encode("<<|endoftext|>|>"), ElementsAre('<', 256, '|', '>'));
    EXPECT_EQ(tokenizer->encode("<|endoftext|").size(), 12U);
    EXPECT_EQ(tokenizer->encode("<|ENDOFTEXT|>").size(), 13U);
    EXPECT_EQ(tokenizer->decode({'a', 256, 'b'}), "a<|endoftext|>b");
}

TEST(ByteTokenizer, ShowsIdsOutsideTheVocabularyAsReplacementCharacters) {
    EXPECT_EQ(make_byte_tokenizer()->decode({'a', 257, -1, 'b'}),
              "a\xEF\xBF\xBD\xEF\xBF\xBD"
              "b");
}

TEST(ByteTokenizer, AlphabetIsThatOfGpt2) {
    const auto alphabet = byte_level_alphabet();
    EXPECT_EQ(alphabet['A'], "A");
    EXPECT_EQ(alphabet[' '], "\u0120");
    EXPECT_EQ(alphabet['\n'], "\u010A");
    EXPECT_EQ(alphabet[0], "\u0100");
    EXPECT_EQ(alphabet[0x7F], "\u0121");
    EXPECT_EQ(alphabet[0xA0], "\u0142");
    EXPECT_EQ(alphabet[0xAD], "\u0143");
    EXPECT_EQ(alphabet[0xFF], "\u00FF");
    EXPECT_EQ(std::set<std::string>(alphabet.begin(), alphabet.end()).size(), 256U);
}

json::value written_tokenizer(const std::filesystem::path& folder) {
    std::ifstream stream(folder / "tokenizer.json");
    std::stringstream text;
    text << stream.rdbuf();
    return json::parse(text.str());
}

TEST(TokenizerFolder, LoadsWhatItWrote) {
    const test::TemporaryFolder folder;
    const auto target = folder.path() / "new" / "model";
    ASSERT_TRUE(write_byte_tokenizer(target).has_value());
    const auto loaded = load_tokenizer(target);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    ASSERT_NE(*loaded, nullptr);
    EXPECT_THAT((*loaded)->encode("é<|endoftext|>"), ElementsAre(0xC3, 0xA9, 256));
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(target)) {
        names.insert(entry.path().filename());
    }
    EXPECT_THAT(names, ElementsAre("special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"));
}

TEST(TokenizerFolder, WithoutTokenizerJsonHasNone) {
    const test::TemporaryFolder folder;
    const auto loaded = load_tokenizer(folder.path());
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(*loaded, nullptr);
}

TEST(TokenizerFolder, AFileInTheWayIsAnError) {
    const test::TemporaryFolder folder;
    folder.write("taken", "");
    const auto written = write_byte_tokenizer(folder.path() / "taken");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().kind, ErrorKind::io);
    EXPECT_THAT(written.error().message, HasSubstr("taken"));
}

TEST(TokenizerFolder, AcceptsHarmlessVariations) {
    const std::function<void(json::object&)> changes[] = {
        [](json::object& root) { root["model"].as_object()["vocab"].as_object()["<|endoftext|>"] = 256; },
        [](json::object& root) { root["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}}; },
        [](json::object& root) {
            root["post_processor"] = json::parse(
                R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"special_tokens":{}})");
        },
        [](json::object& root) { root["pre_tokenizer"].as_object()["use_regex"] = true; },
        [](json::object& root) { root["model"].as_object()["fuse_unk"] = true; },
        [](json::object& root) { root["model"].as_object()["continuing_subword_prefix"] = ""; },
    };
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_byte_tokenizer(folder.path()).has_value());
    const json::value original = written_tokenizer(folder.path());
    for (const auto& change : changes) {
        json::value changed = original;
        change(changed.as_object());
        folder.write("tokenizer.json", json::serialize(changed));
        const auto loaded = load_tokenizer(folder.path());
        EXPECT_TRUE(loaded.has_value()) << loaded.error().message;
    }
}

TEST(TokenizerFolder, NamesTheComponentThatIsNotUnderstood) {
    struct Case {
        const char* named;
        std::function<void(json::object&)> change;
    };
    const Case cases[] = {
        {"model.type \"Unigram\"", [](json::object& root) { root["model"].as_object()["type"] = "Unigram"; }},
        {"has no \"model\"", [](json::object& root) { root.erase("model"); }},
        {"model.merges names a token that is not in model.vocab: \"a b\"",
         [](json::object& root) { root["model"].as_object()["merges"] = json::array{"a b"}; }},
        {"model.merges entry \"ab\"",
         [](json::object& root) { root["model"].as_object()["merges"] = json::array{"ab"}; }},
        {"model.dropout", [](json::object& root) { root["model"].as_object()["dropout"] = 0.1; }},
        {"model.end_of_word_suffix",
         [](json::object& root) { root["model"].as_object()["end_of_word_suffix"] = "</w>"; }},
        {"model.unk_token \"<unk>\" is not in model.vocab",
         [](json::object& root) { root["model"].as_object()["unk_token"] = "<unk>"; }},
        {"the id 98 to two tokens",
         [](json::object& root) { root["model"].as_object()["vocab"].as_object()["a"] = 98; }},
        {"model.vocab entry {\"ab\":-1}",
         [](json::object& root) { root["model"].as_object()["vocab"].as_object()["ab"] = -1; }},
        {"normalizer {\"type\":\"BertNormalizer\"}",
         [](json::object& root) { root["normalizer"] = {{"type", "BertNormalizer"}}; }},
        {"normalizer {\"type\":\"Precompiled\"}",
         [](json::object& root) {
             root["normalizer"] = json::parse(R"({"type":"Sequence","normalizers":[{"type":"Precompiled"}]})");
         }},
        {"truncation", [](json::object& root) { root["truncation"] = {{"max_length", 5}}; }},
        {"pre_tokenizer {\"type\":\"UnicodeScripts\"}",
         [](json::object& root) { root["pre_tokenizer"] = {{"type", "UnicodeScripts"}}; }},
        {"what follows ByteLevel in pre_tokenizer: {\"type\":\"Digits\"}",
         [](json::object& root) {
             root["pre_tokenizer"] =
                 json::parse(R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})");
         }},
        {"\"\\b\" in a regular expression",
         [](json::object& root) {
             root["pre_tokenizer"] =
                 json::parse(R"({"type":"Split","pattern":{"Regex":"\\ba"},"behavior":"Isolated","invert":false})");
         }},
        {"the regular expression \"(a\" is not understood",
         [](json::object& root) {
             root["pre_tokenizer"] =
                 json::parse(R"({"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated","invert":false})");
         }},
        {"post_processor", [](json::object& root) { root["post_processor"] = {{"type", "TemplateProcessing"}}; }},
        {"special_tokens[\"<s>\"] of post_processor",
         [](json::object& root) {
             root["post_processor"] = json::parse(R"({"type":"TemplateProcessing","single":[
                 {"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<s>","type_id":0}}]})");
         }},
        {"decoder", [](json::object& root) { root["decoder"] = {{"type", "WordPiece"}}; }},
        {"added_tokens {}", [](json::object& root) { root["added_tokens"] = json::object(); }},
        {"added_tokens entry", [](json::object& root) { root["added_tokens"].as_array()[0].as_object().erase("id"); }},
        {"\"lstrip\" of", [](json::object& root) { root["added_tokens"].as_array()[0].as_object()["lstrip"] = 1; }},
    };
    const test::TemporaryFolder folder;
    ASSERT_TRUE(write_byte_tokenizer(folder.path()).has_value());
    const json::value original = written_tokenizer(folder.path());
    for (const Case& test : cases) {
        json::value changed = original;
        test.change(changed.as_object());
        folder.write("tokenizer.json", json::serialize(changed));
        const auto loaded = load_tokenizer(folder.path());
        ASSERT_FALSE(loaded.has_value()) << test.named;
        EXPECT_EQ(loaded.error().kind, ErrorKind::invalid_input);
        EXPECT_THAT(loaded.error().message, HasSubstr(test.named));
        EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer.json: "));
    }
}

TEST(TokenizerFolder, RefusesWhatIsNoJsonObject) {
    const test::TemporaryFolder folder;
    for (const char* content : {"", "{\"model\":", "[]", "nonsense"}) {
        folder.write("tokenizer.json", content);
        const auto loaded = load_tokenizer(folder.path());
        ASSERT_FALSE(loaded.has_value()) << content;
        EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer.json: "));
    }
}

}  // namespace
}  // namespace distilld

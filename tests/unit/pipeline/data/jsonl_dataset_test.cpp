#include <gmock/gmock.h>

#include <cstddef>
#include <numeric>
#include <stdexcept>

#include "pipeline/data/dataset.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr std::int32_t kNone = kIgnoredLabel;

DatasetOptions options(std::uint32_t sequence_length, bool packing = true, std::uint32_t vocabulary_size = 0) {
    DatasetOptions result;
    result.sequence_length = sequence_length;
    result.packing = packing;
    result.vocabulary_size = vocabulary_size;
    return result;
}

class JsonlDataset : public ::testing::Test {
  protected:
    Result<std::unique_ptr<Dataset>> load(std::string_view content, const DatasetOptions& how) {
        return load_jsonl_dataset(std::vector<std::filesystem::path>{folder_.write("data.jsonl", content)},
                                  tokenizer_.get(), how);
    }

    std::unique_ptr<Dataset> good(std::string_view content, const DatasetOptions& how) {
        auto loaded = load(content, how);
        if (!loaded) {
            throw std::runtime_error(loaded.error().message);
        }
        return std::move(*loaded);
    }

    std::string refusal(std::string_view content, const DatasetOptions& how) {
        auto loaded = load(content, how);
        if (loaded) {
            return "(was accepted)";
        }
        EXPECT_EQ(loaded.error().kind, ErrorKind::invalid_input);
        // Without the folder, which differs from run to run.
        std::string message = loaded.error().message;
        const std::string prefix = folder_.path().string() + "/";
        EXPECT_EQ(message.substr(0, prefix.size()), prefix);
        return message.substr(prefix.size());
    }

    static TokenBatch all_rows(const Dataset& dataset) {
        std::vector<std::uint64_t> rows(dataset.row_count());
        std::iota(rows.begin(), rows.end(), std::uint64_t{0});
        return dataset.batch(0, rows);
    }

    test::TemporaryFolder folder_;
    std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
};

TEST_F(JsonlDataset, PackingJoinsDocumentsAndCutsRowsWithStrideT) {
    const auto dataset = good("{\"text\":\"abc\"}\n{\"text\":\"de\"}\n", options(2));
    // a b c EOT d e: five inputs with a target, in rows of two.
    EXPECT_EQ(dataset->row_count(), 3U);
    EXPECT_EQ(dataset->token_count(), 5U);
    const TokenBatch batch = all_rows(*dataset);
    EXPECT_THAT(batch.input_ids, ElementsAre('a', 'b', 'c', 256, 'd', 0));
    EXPECT_THAT(batch.labels, ElementsAre('b', 'c', 256, 'd', 'e', kNone));
    EXPECT_THAT(batch.lengths, ElementsAre(2, 2, 1));
    EXPECT_EQ(batch.target_tokens, 5U);
    EXPECT_EQ(batch.rows, 3U);
    EXPECT_EQ(batch.columns, 2U);
}

// Every token but the first is a target exactly once, whatever the number of tokens is modulo T.
TEST_F(JsonlDataset, PackingLosesNoTokenForAnyLength) {
    for (std::uint32_t length = 1; length <= 6; ++length) {
        for (int count = 2; count <= 20; ++count) {
            std::string content = "{\"input_ids\":[0";
            for (int i = 1; i < count; ++i) {
                content += "," + std::to_string(i);
            }
            const auto dataset = good(content + "]}", options(length));
            const TokenBatch batch = all_rows(*dataset);
            std::vector<std::int32_t> targets, expected(static_cast<std::size_t>(count) - 1);
            std::iota(expected.begin(), expected.end(), 1);
            for (std::size_t i = 0; i < batch.labels.size(); ++i) {
                if (batch.labels[i] == kNone) {
                    continue;
                }
                targets.push_back(batch.labels[i]);
                EXPECT_EQ(batch.input_ids[i], batch.labels[i] - 1);
            }
            EXPECT_EQ(targets, expected) << "T " << length << ", " << count << " tokens";
            EXPECT_EQ(dataset->row_count(), (static_cast<std::uint64_t>(count) - 1 + length - 1) / length);
        }
    }
}

TEST_F(JsonlDataset, PackingAddsNoSecondEndOfText) {
    const auto dataset = good("{\"text\":\"a<|endoftext|>\"}\n{\"input_ids\":[256]}\n{\"text\":\"b\"}", options(8));
    EXPECT_THAT(all_rows(*dataset).input_ids, ElementsAre('a', 256, 256, 0, 0, 0, 0, 0));
    EXPECT_THAT(all_rows(*dataset).labels, ElementsAre(256, 256, 'b', kNone, kNone, kNone, kNone, kNone));
}

TEST_F(JsonlDataset, PackingSkipsEmptyDocuments) {
    const auto dataset = good("{\"text\":\"\"}\n{\"text\":\"ab\"}\n{\"input_ids\":[]}\n{\"text\":\"\"}", options(4));
    EXPECT_THAT(all_rows(*dataset).input_ids, ElementsAre('a', 0, 0, 0));
}

TEST_F(JsonlDataset, PackingJoinsReadyMadeIdsAsTheyAre) {
    const auto dataset = good("{\"input_ids\":[1,2]}\n{\"input_ids\":[3]}\n", options(2));
    EXPECT_THAT(all_rows(*dataset).input_ids, ElementsAre(1, 2));
    EXPECT_THAT(all_rows(*dataset).labels, ElementsAre(2, 3));
    EXPECT_TRUE(load("{\"input_ids\":[1,2]}\n{\"input_ids\":[3]}\n", options(2, true, 10)).has_value())
        << "a vocabulary without the tokenizer's end of text";
    const auto mixed =
        good("{\"input_ids\":[1]}\n{\"text\":\"a\"}\n{\"input_ids\":[2]}\n{\"input_ids\":[3]}", options(6));
    EXPECT_THAT(all_rows(*mixed).input_ids, ElementsAre(1, 256, 'a', 256, 2, 0));
}

TEST_F(JsonlDataset, WithoutPackingEachDocumentIsARow) {
    const auto dataset =
        good("{\"text\":\"abcdef\"}\n{\"text\":\"g\"}\n{\"text\":\"hi\"}\n{\"text\":\"\"}", options(3, false));
    ASSERT_EQ(dataset->row_count(), 2U);
    EXPECT_EQ(dataset->token_count(), 4U);
    const TokenBatch batch = all_rows(*dataset);
    EXPECT_THAT(batch.input_ids, ElementsAre('a', 'b', 'c', 'h', 0, 0));
    EXPECT_THAT(batch.labels, ElementsAre('b', 'c', 'd', 'i', kNone, kNone));
    EXPECT_THAT(batch.lengths, ElementsAre(3, 1));
    EXPECT_EQ(batch.target_tokens, 4U);
}

TEST_F(JsonlDataset, LabelsBelongToTheirOwnPosition) {
    const auto dataset = good(R"({"input_ids":[1,2,3,4],"labels":[-100,-100,3,7]})", options(3, false));
    const TokenBatch batch = all_rows(*dataset);
    EXPECT_THAT(batch.input_ids, ElementsAre(1, 2, 3));
    EXPECT_THAT(batch.labels, ElementsAre(kNone, 3, 7));
    EXPECT_EQ(batch.target_tokens, 2U);
    EXPECT_EQ(batch.lengths[0], 3);
}

TEST_F(JsonlDataset, DocumentsWithAndWithoutLabelsMix) {
    const auto dataset = good(
        "{\"input_ids\":[1,2]}\n{\"labels\":[-100,4],\"input_ids\":[3,4]}\n"
        "{\"input_ids\":[5,6],\"labels\":null}\n{\"text\":\"a\"}\n",
        options(7));
    const TokenBatch batch = all_rows(*dataset);
    EXPECT_THAT(batch.input_ids, ElementsAre(1, 2, 3, 4, 5, 6, 256));
    EXPECT_THAT(batch.labels, ElementsAre(2, kNone, 4, 5, 6, 256, 'a'));
}

TEST_F(JsonlDataset, RowsWithoutATargetAreLeftOut) {
    const std::string masked = R"({"input_ids":[1,2,3],"labels":[1,-100,-100]})";
    const auto rows = good(masked + "\n{\"input_ids\":[4,5]}\n", options(2, false));
    ASSERT_EQ(rows->row_count(), 1U);
    EXPECT_THAT(all_rows(*rows).input_ids, ElementsAre(4));
    tokenizer_.reset();
    const auto packed = good(masked + "\n{\"input_ids\":[4,5]}\n", options(2));
    ASSERT_EQ(packed->row_count(), 1U);
    EXPECT_THAT(all_rows(*packed).labels, ElementsAre(4, 5));
}

TEST_F(JsonlDataset, ReadsBomCrlfEmptyLinesEscapesAndOtherFields) {
    const auto dataset = good(
        "\xEF\xBB\xBF{\"text\":\"\\u00e9\\u0000\\ud83d\\ude00\"}\r\n\r\n  \t\r\n"
        "{\"id\":{\"text\":1},\"text\":\"x\",\"score\":null}",
        options(8));
    EXPECT_THAT(all_rows(*dataset).input_ids, ElementsAre(0xC3, 0xA9, 0, 0xF0, 0x9F, 0x98, 0x80, 256));
    EXPECT_EQ(all_rows(*dataset).labels.back(), 'x');
}

TEST_F(JsonlDataset, HashIsFixedForever) {
    // sha256("distilld dataset 1\n" + u64 T, rows, (begin, length)…, token count, i32 ids…, i32 targets…)
    const auto dataset = good("{\"text\":\"ab\"}\n{\"text\":\"c\"}", options(2));
    EXPECT_EQ(dataset->hash(), "c53ed4e4812b4cd27fac0faf1f3a6abfa0ad145f3bd1b051288a5a07c64885f9");
}

TEST_F(JsonlDataset, HashTellsApartWhatTrainsDifferently) {
    const std::string two = "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5,6]}\n";
    const std::string base = good(two, options(2))->hash();
    EXPECT_EQ(good("\n" + two, options(2))->hash(), base);
    EXPECT_EQ(good("{\"input_ids\":[1,2,3],\"labels\":[1,2,3]}\n{\"input_ids\":[4,5,6]}\n", options(2))->hash(), base)
        << "labels that equal the ids are no labels";
    EXPECT_NE(good(two, options(3))->hash(), base);
    EXPECT_NE(good(two, options(2, false))->hash(), base);
    EXPECT_NE(good("{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5,7]}\n", options(2))->hash(), base);
    EXPECT_NE(good("{\"input_ids\":[4,5,6]}\n{\"input_ids\":[1,2,3]}\n", options(2))->hash(), base);
    EXPECT_NE(good("{\"input_ids\":[1,2,3],\"labels\":[1,2,-100]}\n{\"input_ids\":[4,5,6]}\n", options(2))->hash(),
              base);
    EXPECT_NE(good("{\"text\":\"ab\"}\n{\"text\":\"c\"}", options(2))->hash(),
              good("{\"text\":\"abc\"}", options(2))->hash());
    EXPECT_NE(good("{\"input_ids\":[1,2]}\n{\"input_ids\":[3,4]}", options(2, false))->hash(),
              good("{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4]}", options(2, false))->hash());
}

TEST_F(JsonlDataset, BatchTakesTheRowsInTheOrderAsked) {
    const auto dataset = good("{\"input_ids\":[1,2]}\n{\"input_ids\":[3,4]}\n{\"input_ids\":[5,6]}", options(1, false));
    const TokenBatch batch = dataset->batch(77, {2, 0, 2});
    EXPECT_EQ(batch.number, 77U);
    EXPECT_THAT(batch.row_ids, ElementsAre(2, 0, 2));
    EXPECT_THAT(batch.input_ids, ElementsAre(5, 1, 5));
    EXPECT_THAT(batch.labels, ElementsAre(6, 2, 6));
    EXPECT_THROW((void)dataset->batch(0, {3}), std::out_of_range);
}

TEST_F(JsonlDataset, ManyDocumentsKeepTheirContent) {
    std::string content;
    std::vector<std::int32_t> expected;
    for (std::int32_t i = 0; i < 5000; ++i) {
        content += "{\"input_ids\":[";
        for (std::int32_t j = 0; j <= i % 50; ++j) {
            content += (j > 0 ? "," : "") + std::to_string((i * 31 + j) % 250);
            expected.push_back((i * 31 + j) % 250);
        }
        content += i % 2 == 0 ? "]}\n" : "]}\r\n";
    }
    const auto dataset = good(content, options(128));
    const TokenBatch batch = all_rows(*dataset);
    EXPECT_EQ(dataset->token_count(), expected.size() - 1);
    ASSERT_GE(batch.input_ids.size(), expected.size() - 1);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end() - 1, batch.input_ids.begin()));
}

TEST_F(JsonlDataset, RefusesBadLinesByFileAndLine) {
    struct Case {
        const char* line;
        const char* message;
    };
    const Case cases[] = {
        {"{", "is not a JSON object"},
        {"{\"text\":\"a\"} {\"text\":\"b\"}", "is not a JSON object"},
        {"{\"text\":\"a\",\"score\":01}", "is not a JSON object"},
        {"\"abc\"", "is a string, expected an object: accepted are"},
        {"[1,2]", "is an array, expected an object"},
        {"[{\"text\":\"a\"}]", "; if the file is an array, jq -c '.[]' makes lines of it"},
        {"[", "; if the file is an array, jq -c '.[]' makes lines of it"},
        {"null", "is null, expected an object"},
        {"{}",
         "has neither \"text\" nor \"input_ids\": accepted are {\"text\": \"…\"}, "
         "{\"prompt\": \"…\", \"completion\": \"…\"}, {\"instruction\": \"…\", \"output\": \"…\"} and {\"input_ids\": "
         "[…]}"},
        {"{\"content\":\"a\"}", "has neither \"text\" nor \"input_ids\""},
        {"{\"messages\":[]}", "is a conversation; convert it to tokens with a chat template first: python3 /"},
        {"{\"messages\":[],\"a\":1}", "tools/render_chat.py --tokenizer TOKENIZER_FOLDER /"},
        {"{\"messages\":[],\"text\":\"a\"}", "data.jsonl /"},
        {"{\"prompt\":[],\"completion\":[]}", "data.ids.jsonl (docs/data.md)"},
        {"{\"conversations\":[]}", "is a conversation; convert it to tokens with a chat template first"},
        {R"({"instruction":"a","output":"b","history":[["c","d"]]})", "is a conversation"},
        {R"({"instruction":"a","output":"b","system":"c"})", "is a conversation"},
        {R"({"instruction":"a"})", "has an \"instruction\" and no \"output\""},
        {R"({"instruction":5,"output":"b"})", "\"instruction\" is a number, expected a string"},
        {R"({"instruction":"a","input":[],"output":"b"})", "\"input\" is an array, expected a string"},
        {R"({"instruction":"a","output":null})", "\"output\" is null, expected a string"},
        {R"({"instruction":"a","output":"b","labels":[]})", "go with \"input_ids\", not with \"instruction\""},
        {R"({"instruction":"a","output":"b","teacher_prompt":"c"})", "goes with \"prompt\" and \"completion\""},
        {R"({"instruction":"a","instruction":"b"})", "\"instruction\" appears twice"},
        {"{\"prompt\":\"a\"}", "has a \"prompt\" and no \"completion\""},
        {"{\"completion\":\"a\"}", "has a \"completion\" and no \"prompt\""},
        {"{\"prompt\":\"a\",\"completion\":5}", "\"completion\" is a number, expected a string"},
        {"{\"prompt\":\"a\",\"completion\":\"b\",\"text\":\"c\"}", "holds both \"text\" and \"prompt\""},
        {"{\"prompt\":\"a\",\"completion\":\"b\",\"input_ids\":[]}", "holds both \"prompt\" and \"input_ids\""},
        {"{\"prompt\":\"a\",\"completion\":\"b\",\"labels\":[]}", "go with \"input_ids\", not with \"prompt\""},
        {"{\"text\":\"a\",\"input_ids\":[1]}", "holds both"},
        {"{\"text\":\"a\",\"text\":\"b\"}", "\"text\" appears twice"},
        {"{\"text\":\"a\",\"labels\":[1]}", "\"labels\" go with \"input_ids\""},
        {"{\"labels\":[1]}", "has neither"},
        {"{\"text\":5}", "\"text\" is a number, expected a string"},
        {"{\"text\":null}", "\"text\" is null, expected a string"},
        {"{\"text\":\"\\ud800\"}", "JSON"},
        {"{\"text\":\"\\udc00\"}", ""},
        {"{\"text\":\"\xFF\"}", "is not valid UTF-8"},
        {"{\"text\":\"\xC3\"}", "is not valid UTF-8"},
        {"{\"text\":\"\xED\xA0\x80\"}", "is not valid UTF-8"},
        {"{\"input_ids\":\"1,2\"}", "\"input_ids\" is a string, expected an array of integers"},
        {"{\"input_ids\":[1,2.0]}", "input_ids[1] is no 64-bit integer"},
        {"{\"input_ids\":[1,\"2\"]}", "input_ids[1] is a string, expected a token id"},
        {"{\"input_ids\":[[1,2]]}", "input_ids[0] is an array, expected a token id"},
        {"{\"input_ids\":[true]}", "input_ids[0] is a boolean"},
        {"{\"input_ids\":[-1]}", "input_ids[0] is -1, not a token id"},
        {"{\"input_ids\":[-100]}", "input_ids[0] is -100, not a token id"},
        {"{\"input_ids\":[2147483648]}", "input_ids[0] is 2147483648"},
        {"{\"input_ids\":[18446744073709551615]}", "input_ids[0] is no 64-bit integer"},
        {"{\"input_ids\":[1,257]}", "input_ids[1] is 257, outside the vocabulary of 257"},
        {"{\"input_ids\":[1,2],\"labels\":[1]}", "\"labels\" has 1 entries and \"input_ids\" has 2"},
        {"{\"input_ids\":[1,2],\"labels\":[1,-5]}", "labels[1] is -5, not a token id and not -100"},
        {"{\"input_ids\":[1,2],\"labels\":[1,300]}", "labels[1] is 300, outside the vocabulary of 257"},
        {"{\"input_ids\":[1,2],\"labels\":{}}", "\"labels\" is an object"},
        {"{\"input_ids\":[1,2],\"attention_mask\":[1,0]}", "\"attention_mask\" holds zeros"},
    };
    for (const Case& test : cases) {
        const std::string message =
            refusal("{\"text\":\"fine\"}\n\n" + std::string(test.line) + "\n", options(4, true, 257));
        EXPECT_THAT(message, AllOf(HasSubstr("data.jsonl:3: "), HasSubstr(test.message))) << test.line;
    }
    EXPECT_TRUE(load("{\"input_ids\":[1,2],\"attention_mask\":[1,1]}", options(4)).has_value());
    EXPECT_TRUE(load("{\"input_ids\":[1,256]}", options(4, true, 257)).has_value());
}

TEST_F(JsonlDataset, ChecksTextAndEndOfTextAgainstTheVocabulary) {
    EXPECT_THAT(refusal("{\"text\":\"aé\"}", options(4, true, 128)),
                AllOf(HasSubstr("data.jsonl:1: "), HasSubstr("token id 195, outside the vocabulary of 128")));
    EXPECT_THAT(refusal("{\"text\":\"ab\"}\n{\"text\":\"cd\"}", options(4, true, 256)),
                AllOf(HasSubstr("data.jsonl:2: "), HasSubstr("id 256"), HasSubstr("vocabulary of 256")));
    EXPECT_TRUE(load("{\"text\":\"ab\"}\n{\"text\":\"cd\"}", options(4, false, 256)).has_value());
}

TEST_F(JsonlDataset, TextNeedsATokenizer) {
    tokenizer_.reset();
    DatasetOptions how = options(4);
    EXPECT_THAT(refusal("{\"text\":\"ab\"}", how),
                HasSubstr("data.jsonl:1: \"text\" cannot be read: there is no tokenizer"));
    how.no_tokenizer_reason = "model.type \"Unigram\" is not understood";
    EXPECT_THAT(refusal("{\"text\":\"ab\"}", how),
                HasSubstr("cannot be read: model.type \"Unigram\" is not understood"));
}

TEST_F(JsonlDataset, EmptyFilesAreSaidToBeEmpty) {
    for (const char* content : {"", "\n\n"}) {
        EXPECT_THAT(refusal(content, options(4)), HasSubstr("data.jsonl: is empty: write at least one document"))
            << content;
    }
}

DatasetOptions overflowing(Overflow overflow, std::uint32_t sequence_length = 3) {
    DatasetOptions how = options(sequence_length, false);
    how.overflow = overflow;
    return how;
}

// Nine tokens are rows of three inputs, each of which is a label but the first.
TEST_F(JsonlDataset, LongDocumentsAreSplitTruncatedOrRefused) {
    const std::string lines =
        "{\"input_ids\":[1,2,3,4,5,6,7,8,9]}\n{\"input_ids\":[11,12,13,14]}\n{\"input_ids\":[21,22]}";
    const auto split = good(lines, overflowing(Overflow::split));
    const TokenBatch batch = all_rows(*split);
    EXPECT_THAT(batch.input_ids, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 0, 11, 12, 13, 21, 0, 0));
    EXPECT_THAT(batch.labels, ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, kNone, 12, 13, 14, 22, kNone, kNone));
    EXPECT_EQ(split->token_count(), 12U);
    EXPECT_EQ(split->tokens_read(), 12U);
    const auto truncated = good(lines, overflowing(Overflow::truncate));
    EXPECT_THAT(all_rows(*truncated).input_ids, ElementsAre(1, 2, 3, 11, 12, 13, 21, 0, 0));
    EXPECT_EQ(truncated->token_count(), 7U);
    EXPECT_EQ(truncated->tokens_read(), 12U);
    EXPECT_NE(split->hash(), truncated->hash());
    EXPECT_THAT(refusal(lines, overflowing(Overflow::error)),
                HasSubstr("data.jsonl:1: has 9 tokens, 4 of which fit into a row: raise /dataset/sequence_length"));
    const auto whole = good(lines, overflowing(Overflow::error, 8));
    EXPECT_EQ(whole->hash(), good(lines, overflowing(Overflow::split, 8))->hash()) << "nothing is too long";
}

TEST_F(JsonlDataset, PiecesKeepTheirLabelsAndThoseWithoutAreLeftOut) {
    const auto dataset = good("{\"input_ids\":[1,2,3,4,5,6,7,8],\"labels\":[-100,-100,-100,-100,-100,6,7,8]}",
                              overflowing(Overflow::split));
    const TokenBatch batch = all_rows(*dataset);
    EXPECT_THAT(batch.input_ids, ElementsAre(4, 5, 6, 7, 0, 0));
    EXPECT_THAT(batch.labels, ElementsAre(kNone, 6, 7, 8, kNone, kNone));
    EXPECT_EQ(dataset->token_count(), 4U);
    EXPECT_EQ(dataset->tokens_read(), 7U);
}

TEST_F(JsonlDataset, JoinedDocumentsAreUsedWhole) {
    const auto dataset = good("{\"text\":\"abc\"}\n{\"text\":\"de\"}\n", options(2));
    EXPECT_EQ(dataset->tokens_read(), dataset->token_count());
}

TEST_F(JsonlDataset, ATeacherMayReadOtherDocumentsThatEndAlike) {
    DatasetOptions how = options(4, false);
    how.teacher_sequence_length = 6;
    const std::string lines = R"({"input_ids": [1, 2, 3, 4, 5, 6], "teacher_input_ids": [9, 8, 7, 3, 4, 5, 6]})"
                              "\n"
                              R"({"input_ids": [5], "teacher_input_ids": [4, 5]})"
                              "\n"
                              R"({"input_ids": [1, 2, 3], "labels": [-100, -100, 3], "teacher_input_ids": [2, 3]})"
                              "\n";
    const auto dataset = good(lines, how);
    const TokenBatch own = all_rows(*dataset);
    EXPECT_THAT(own.input_ids, ElementsAre(1, 2, 3, 4, 1, 2, 0, 0));
    EXPECT_THAT(own.labels, ElementsAre(kNone, 3, 4, 5, kNone, 3, kNone, kNone)) << "cut, and 2 is not the teacher's";
    ASSERT_NE(dataset->teacher_documents(), nullptr);
    EXPECT_EQ(&dataset->asked_about(), dataset->teacher_documents());
    const TokenBatch read = all_rows(*dataset->teacher_documents());
    EXPECT_THAT(read.input_ids, ElementsAre(9, 8, 7, 3, 4, 2, 0, 0, 0, 0));
    EXPECT_THAT(read.labels, ElementsAre(kNone, kNone, 3, 4, 5, 3, kNone, kNone, kNone, kNone));
    how.teacher_sequence_length = 0;
    const auto without = good(R"({"input_ids": [1, 2], "labels": [-100, 2]})", how);
    const auto with = good(R"({"input_ids": [1, 2], "labels": [-100, 2], "teacher_input_ids": [1, 2]})", how);
    EXPECT_EQ(without->teacher_documents(), nullptr);
    EXPECT_NE(without->hash(), with->hash());
    EXPECT_EQ(without->asked_about().hash(), with->asked_about().hash()) << "a store of these answers serves both";
}

TEST_F(JsonlDataset, NothingToTrainOnIsAnError) {
    for (const char* content : {"{\"text\":\"\"}", "{\"text\":\"a\"}", "{\"input_ids\":[1,2],\"labels\":[1,-100]}"}) {
        EXPECT_THAT(refusal(content, options(4)), HasSubstr("data.jsonl: holds no row to learn from")) << content;
        EXPECT_THAT(refusal(content, options(4, false)), HasSubstr("data.jsonl: holds no row to learn from"))
            << content;
    }
    EXPECT_THAT(refusal("{\"text\":\"a\"}\n{\"text\":\"b\"}", options(4, false)), HasSubstr("no row to learn from"));
    EXPECT_TRUE(load("{\"text\":\"a\"}\n{\"text\":\"b\"}", options(4)).has_value());
}

TEST_F(JsonlDataset, RefusesLongLinesAndNoLength) {
    DatasetOptions narrow = options(4);
    narrow.max_line_bytes = 20;
    EXPECT_TRUE(load("{\"text\":\"123456789\"}", narrow).has_value());
    EXPECT_THAT(refusal("{\"text\":\"1234567890\"}", narrow), HasSubstr("data.jsonl:1: line is longer than 20 bytes"));
    const auto zero = load("{\"text\":\"ab\"}", options(0));
    ASSERT_FALSE(zero.has_value());
    EXPECT_THAT(zero.error().message, HasSubstr("sequence_length"));
    const auto absent = load_jsonl_dataset(std::vector<std::filesystem::path>{folder_.path() / "absent.jsonl"},
                                           tokenizer_.get(), options(4));
    ASSERT_FALSE(absent.has_value());
    EXPECT_EQ(absent.error().kind, ErrorKind::io);
    EXPECT_THAT(absent.error().message, HasSubstr("absent.jsonl"));
}

}  // namespace
}  // namespace distilld

// Tokenizers in files: the forms agree, what is written is read back, and what is wrong is said in one line.
#include "mantissa/data/tokenizer_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/file.h"
#include "mantissa/data/tokenizer_alphabet.h"
#include "mantissa/data/tokenizer_train.h"
#include "tests/data/tokenizer_test_data.h"
#include "tests/support/error_of.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {

namespace {

using testing::error_of;
using testing::write_file;
using Json = nlohmann::json;

/// The small tokenizer's vocabulary as in vocab.json.
Json small_vocabulary() {
    const TokenizerParts parts = small_parts();
    Json entries = Json::object();
    for (std::size_t id = 0; id + 1 < parts.tokens.size(); ++id) entries[spell_bytes(parts.tokens[id])] = id;
    entries["<|endoftext|>"] = 261;
    return entries;
}

const std::string small_merges = "#version: 0.2\nh e\nl l\nll o\nhe llo\n\u0120 hello\n";

/// The small tokenizer as tokenizer.json, merges as strings.
Json small_json() {
    Json json = {
        {"version", "1.0"},
        {"truncation", nullptr},
        {"padding", nullptr},
        {"added_tokens",
         {{{"id", 261},
           {"content", "<|endoftext|>"},
           {"single_word", false},
           {"lstrip", false},
           {"rstrip", false},
           {"normalized", true},
           {"special", true}}}},
        {"normalizer", nullptr},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
        {"post_processor", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}}},
        {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}}},
        {"model",
         {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", ""},
          {"end_of_word_suffix", ""},
          {"fuse_unk", false},
          {"vocab", small_vocabulary()},
          {"merges", {"h e", "l l", "ll o", "he llo", "\u0120 hello"}}}}};
    return json;
}

std::string base64(const std::string& bytes) {
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t group = 0;
        for (std::size_t i = 0; i < 3; ++i)
            group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
        for (std::size_t i = 0; i < 4; ++i)
            text += at + i <= bytes.size() ? digits[group >> (18 - 6 * i) & 63] : '=';
    }
    return text;
}

std::string tiktoken_lines(const TokenizerParts& parts) {
    std::string lines;
    for (std::size_t id = 0; id + 1 < parts.tokens.size(); ++id)
        lines += base64(parts.tokens[id]) + " " + std::to_string(id) + "\n";
    return lines;
}

Tokenizer parse_pair(const std::string& vocabulary, const std::string& merges) {
    return parse_vocabulary_and_merges({vocabulary, "vocab.json"}, {merges, "merges.txt"});
}

std::string pair_error(const Json& vocabulary, const std::string& merges) {
    return error_of([&] { parse_pair(vocabulary.dump(), merges); });
}

std::string json_error(const Json& json) {
    return error_of([&] { parse_tokenizer_json({json.dump(), "tokenizer.json"}); });
}

}  // namespace

TEST(TokenizerFiles, AllFormsGiveTheSameTokens) {
    const Ids expected = {259, 260, '!', 256, 257};
    const std::string text = "hello hello!hell";
    EXPECT_EQ(parse_pair(small_vocabulary().dump(), small_merges).encode(text), expected);
    Json json = small_json();
    EXPECT_EQ(parse_tokenizer_json({json.dump(), "j"}).encode(text), expected);
    // Written as text, since pairs in braces would become an object.
    json["model"]["merges"] =
        Json::parse(R"([["h","e"],["l","l"],["ll","o"],["he","llo"],["\u0120","hello"]])");
    EXPECT_EQ(parse_tokenizer_json({json.dump(), "j"}).encode(text), expected);
    const Tokenizer ranks = parse_tiktoken({tiktoken_lines(small_parts()), "t"});
    EXPECT_EQ(ranks.encode(text), expected);
    EXPECT_EQ(ranks.special("<|endoftext|>"), 261);
}

TEST(TokenizerFilesSlow, Gpt2AsTiktokenAndAsTokenizerJson) {
    MANTISSA_SKIP_WITHOUT_SHARED_DATA();
    const Tokenizer gpt2 = load_gpt2();
    EXPECT_EQ(gpt2.vocabulary(), 50257);
    EXPECT_EQ(gpt2.special("<|endoftext|>"), 50256);
    const Tokenizer ranks = parse_tiktoken({tiktoken_lines(gpt2.parts()), "r50k_base.tiktoken"});
    const std::string text = read_file(*shared_data() / "tinyshakespeare.txt");
    EXPECT_EQ(ranks.encode(text), gpt2.encode(text));
    EXPECT_EQ(ranks.special("<|endoftext|>"), 50256);
}

TEST(TokenizerFiles, WhatIsWrittenIsReadBack) {
    const TemporaryDirectory directory;
    const Tokenizer small(small_parts());
    EXPECT_EQ(error_of([&] { write_tokenizer(small, directory / "typo/tokenizer"); }),
              (directory / "typo/tokenizer").string() + ": there is no folder " +
                  (directory / "typo").string() + "; make it, or name another place");
    EXPECT_FALSE(std::filesystem::exists(directory / "typo"));
    write_tokenizer(small, directory / "tokenizer");
    const Tokenizer read = load_tokenizer(directory / "tokenizer");
    EXPECT_EQ(read.parts().tokens, small.parts().tokens);
    EXPECT_EQ(read.encode("hello hello, world"), small.encode("hello hello, world"));
    EXPECT_EQ(read.special("<|endoftext|>"), 261);
    EXPECT_EQ(read_file(directory / "tokenizer/merges.txt"), small_merges);
    // tokenizers 0.23 reads tokenizer.json to the same ids. Nothing but the three files is left behind.
    const auto entries = std::filesystem::directory_iterator(directory / "tokenizer");
    EXPECT_EQ(std::distance(begin(entries), end(entries)), 3);
}

TEST(TokenizerFiles, WhatWasReadIsWrittenAsItWas) {
    const TemporaryDirectory directory;
    write_file(directory / "a.tiktoken", tiktoken_lines(small_parts()));
    write_tokenizer(load_tokenizer(directory / "a.tiktoken"), directory / "out");
    EXPECT_EQ(read_file(directory / "out/tokenizer.tiktoken"), tiktoken_lines(small_parts()));
}

TEST(TokenizerFiles, DirectoryAndFileNames) {
    const TemporaryDirectory directory;
    const std::string name = directory.path().string();
    EXPECT_EQ(error_of([&] { load_tokenizer(directory.path()); }),
              name +
                  ": holds no tokenizer: expected tokenizer.json, or vocab.json and merges.txt, or "
                  "encoder.json and "
                  "vocab.bpe, or tokenizer.tiktoken");
    write_file(directory / "tokenizer.json", small_json().dump());
    EXPECT_EQ(load_tokenizer(directory.path()).vocabulary(), 262);
    EXPECT_EQ(load_tokenizer(directory / "tokenizer.json").vocabulary(), 262);
    write_file(directory / "a.tiktoken", tiktoken_lines(small_parts()));
    EXPECT_EQ(load_tokenizer(directory / "a.tiktoken").vocabulary(), 262);
    write_file(directory / "a.model", "x");
    EXPECT_EQ(error_of([&] { load_tokenizer(directory / "a.model"); }),
              name + "/a.model: expected a tokenizer's directory, tokenizer.json or a .tiktoken file");
    EXPECT_EQ(
        error_of([&] { load_tokenizer(directory / "absent"); }),
        name +
            "/absent: does not exist; a tokenizer is a folder with tokenizer.json, or with vocab.json and "
            "merges.txt, or a file such as tokenizer.json");
}

/// The tokenizer that a checkpoint keeps beside the weights: a directory with these files holds the same
/// tokenizer.
TEST(TokenizerFiles, TextsMakeTheSameTokenizerAgain) {
    const TemporaryDirectory directory, source;
    write_file(source / "a.tiktoken", tiktoken_lines(small_parts()));
    write_file(source / "tokenizer.json", small_json().dump());
    for (const char* name : {"a.tiktoken", "tokenizer.json"}) {
        const Tokenizer tokenizer = load_tokenizer(source / name);
        const std::filesystem::path copy = directory / (std::string(name) + ".copy");
        std::filesystem::create_directory(copy);
        EXPECT_FALSE(holds_tokenizer(copy));
        for (const auto& [file, text] : tokenizer_texts(tokenizer)) write_file(copy / file, text);
        ASSERT_TRUE(holds_tokenizer(copy)) << name;
        const Tokenizer again = load_tokenizer(copy);
        EXPECT_EQ(again.vocabulary(), tokenizer.vocabulary());
        EXPECT_EQ(again.encode("hello  world"), tokenizer.encode("hello  world")) << name;
    }
}

TEST(TokenizerFiles, PairsThatDisagreeOrAreDamaged) {
    const std::string start = "vocab.json: the tokenizer disagrees with itself: ";
    EXPECT_EQ(pair_error(small_vocabulary(), small_merges), "no error");
    EXPECT_EQ(pair_error(small_vocabulary(), "h e\nl l\nll o\nhe llo\n"),
              start + "token 260 (\"\u0120hello\") is in the vocabulary but no merge makes it");
    EXPECT_EQ(pair_error(small_vocabulary(), small_merges + "x y\n"),
              start + "line 7 of the merges needs the token \"xy\", which the vocabulary lacks");
    EXPECT_EQ(pair_error(small_vocabulary(), small_merges + "h e\n"),
              start + "merge 6 repeats an earlier merge");
    EXPECT_EQ(pair_error(small_vocabulary(), "h e\nll\n"),
              "merges.txt: line 2: expected two tokens with one space between them, found \"ll\"");
    EXPECT_EQ(pair_error(small_vocabulary(), "h e\n\nl l\n"),
              "merges.txt: line 2: expected two tokens with one space between them, found \"\"");
    EXPECT_EQ(pair_error(small_vocabulary(), "h e\r \n"),
              "merges.txt: line 1: expected two tokens with one space between them, found \"h e\\x0D \"");
    EXPECT_EQ(pair_error(small_vocabulary(), std::string("h \xFF\x00\n", 5)),
              start + "line 1 of the merges needs the token \"\\xFF\\x00\", which the vocabulary lacks");

    const auto with = [](const char* key, Json id) {
        Json entries = small_vocabulary();
        entries[key] = std::move(id);
        return pair_error(entries, small_merges);
    };
    EXPECT_EQ(with("he", 7), "vocab.json: id 7 stands for both \"he\" and \"\u0107\"");
    EXPECT_EQ(with("zz", 300),
              "vocab.json: token \"zz\" has id 300, though there are 263 tokens: ids must run from 0 without "
              "a gap");
    EXPECT_EQ(with("zz", 5'000'000'000), "vocab.json: token \"zz\" has id 5000000000, which is too large");
    EXPECT_EQ(with("he", -1), "vocab.json: vocabulary: id of \"he\": expected an unsigned integer, found -1");
    EXPECT_EQ(with("he", 2.0),
              "vocab.json: vocabulary: id of \"he\": expected an unsigned integer, found 2.0");
    EXPECT_EQ(with("\u4e09", 262),
              "vocab.json: token 262 (\"\u4e09\") is not spelled in the byte-level alphabet");
    EXPECT_EQ(pair_error(Json::array(), ""),
              "vocab.json: vocabulary: expected an object of tokens and their ids, found an array");
    EXPECT_EQ(error_of([] { parse_pair(R"({"a": 0, "a": 1})", ""); }),
              "vocab.json: the key \"a\" appears twice in one object");
    Json no_byte = small_vocabulary();
    no_byte.erase("<|endoftext|>");
    no_byte["<x>"] = no_byte["a"];
    no_byte.erase("a");
    EXPECT_EQ(pair_error(no_byte, small_merges),
              start + "no token stands for the byte 0x61; a byte-level tokenizer has all 256");
}

TEST(TokenizerFiles, TokenizerJsonHonoursOptionsAndRefusesOthersByName) {
    EXPECT_EQ(json_error(small_json()), "no error");
    const auto with = [](const char* pointer, Json value) {
        Json json = small_json();
        json[Json::json_pointer(pointer)] = std::move(value);
        return json;
    };
    const auto refusal = [&](const char* pointer, Json value) {
        return json_error(with(pointer, std::move(value)));
    };
    const auto model_unsupported = [](const std::string& what) {
        return "tokenizer.json: " + what +
               " is not supported: mantissa reads BPE, byte-level or with byte_fallback, and Unigram";
    };
    const auto unsupported = [](const std::string& what) {
        return "tokenizer.json: " + what +
               " is not supported: mantissa reads byte-level BPE as GPT-2's, LLaMA 3's and Qwen's";
    };
    // Honoured. "hell" is a token that no merge makes... but as a whole piece it is taken.
    Json whole = with("/model/ignore_merges", true);
    EXPECT_EQ(parse_tokenizer_json({whole.dump(), "j"}).encode("hello"), (Ids{259}));
    EXPECT_EQ(
        parse_tokenizer_json({with("/pre_tokenizer/add_prefix_space", true).dump(), "j"}).encode("hello"),
        (Ids{260}));
    // The class's default is true.
    EXPECT_EQ(
        parse_tokenizer_json({with("/pre_tokenizer", {{"type", "ByteLevel"}}).dump(), "j"}).encode("hello"),
        (Ids{260}));

    EXPECT_EQ(refusal("/model/type", "WordPiece"), model_unsupported("the model WordPiece"));
    EXPECT_EQ(refusal("/model/dropout", 0.1), model_unsupported("model.dropout = 0.1"));
    EXPECT_EQ(refusal("/model/byte_fallback", true),
              "tokenizer.json: the pre_tokenizer ByteLevel is not supported: mantissa reads BPE with "
              "byte_fallback and Unigram, as LLaMA 2's and T5's");
    EXPECT_EQ(refusal("/model/end_of_word_suffix", "</w>"),
              model_unsupported("model.end_of_word_suffix = \"</w>\""));
    EXPECT_EQ(refusal("/model/continuing_subword_prefix", "##"),
              model_unsupported("model.continuing_subword_prefix = \"##\""));
    EXPECT_EQ(refusal("/normalizer", {{"type", "NFC"}}), "no error");
    EXPECT_EQ(refusal("/normalizer", {{"type", "Lowercase"}}), unsupported("the normalizer Lowercase"));
    EXPECT_EQ(refusal("/pre_tokenizer", {{"type", "FixedLength"}}),
              unsupported("the pre_tokenizer FixedLength"));
    EXPECT_EQ(refusal("/pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", ""}}),
              unsupported("the delimiter \"\""));
    EXPECT_EQ(refusal("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}),
              "tokenizer.json: the normalizer's precompiled_charsmap is no base64");
    EXPECT_EQ(refusal("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/wAAAA=="}}),
              "tokenizer.json: the normalizer's precompiled_charsmap has a trie of another size");
    EXPECT_EQ(refusal("/pre_tokenizer", nullptr), unsupported("a pre_tokenizer without ByteLevel"));
    EXPECT_EQ(refusal("/post_processor", {{"type", "TemplateProcessing"}}),
              "tokenizer.json: post_processor: \"single\" is missing");
    EXPECT_EQ(refusal("/decoder", {{"type", "WordPiece"}}), unsupported("the decoder WordPiece"));
    EXPECT_EQ(refusal("/truncation", {{"max_length", 8}}), model_unsupported("truncation"));
    EXPECT_EQ(
        refusal("/added_tokens/0/lstrip", "yes"),
        "tokenizer.json: the added token \"<|endoftext|>\" lstrip: expected true or false, found \"yes\"");
    // A token that is not special is found in any text.
    const Json ordinary = with("/added_tokens/0/special", false);
    EXPECT_EQ(parse_tokenizer_json({ordinary.dump(), "j"}).encode("<|endoftext|>"), (Ids{261}));
    EXPECT_EQ(refusal("/added_tokens/0/id", 5),
              "tokenizer.json: the special token \"<|endoftext|>\" has id 5 here and 261 in the vocabulary");
    EXPECT_EQ(
        refusal("/model/merges/1", 7),
        "tokenizer.json: model.merges: entry 2: expected \"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"], found 7");
    EXPECT_EQ(refusal("/model/merges", "h e"),
              "tokenizer.json: model.merges: expected an array, found \"h e\"");
    EXPECT_EQ(refusal("/pre_tokenizer/add_prefix_space", 1),
              "tokenizer.json: pre_tokenizer.add_prefix_space: expected true or false, found 1");
    EXPECT_EQ(json_error(Json::array()), "tokenizer.json: expected an object, found an array");
    EXPECT_EQ(json_error(Json::object()), "tokenizer.json: top level: \"model\" is missing");
}

/// A Unigram; the vocabulary is that of the example in the documentation of the library's class.
Json small_unigram() {
    return Json::parse(R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": true},
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", 0], ["b", 0], ["c", 0], ["d", 0],
            ["cd", 1], ["ab", 2], ["abc", 5], ["abcd", 10]]}})");
}

TEST(TokenizerFiles, UnigramTakesTheLargestSum) {
    const Tokenizer tokenizer = parse_tokenizer_json({small_unigram().dump(), "j"});
    EXPECT_EQ(tokenizer.encode("abcdacdxx"), (Ids{8, 1, 5, 0}));
    EXPECT_EQ(tokenizer.decode(Ids{8, 1, 5, 0}), "abcdacd<unk>");
    // Letters of a special token are unknown here where it is text.
    EXPECT_EQ(tokenizer.encode("a<unk>d"), (Ids{1, 0, 4}));
    EXPECT_EQ(tokenizer.encode("a<unk>d", {.specials = SpecialsInText::as_text}), (Ids{1, 0, 4}));
    Json spelled = small_unigram();
    for (const char* more : {"<", ">", "u", "n", "k"}) spelled["model"]["vocab"].push_back({more, -1});
    spelled["normalizer"] = {{"type", "NFKC"}};
    const Tokenizer letters = parse_tokenizer_json({spelled.dump(), "j"});
    Encoder encoder(letters);
    // Wide brackets become that token, too, but not where it is text; an encoder takes both.
    for (const auto& [specials, expected] : {std::pair(SpecialsInText::as_tokens, Ids{0}),
                                             std::pair(SpecialsInText::as_text, Ids{9, 11, 12, 13, 10}),
                                             std::pair(SpecialsInText::as_tokens, Ids{0})}) {
        Ids ids;
        encoder.encode("\uFF1Cunk\uFF1E", ids, {.specials = specials});
        EXPECT_EQ(ids, expected);
    }
}

TEST(TokenizerFiles, UnigramIsRefusedByName) {
    const auto refusal = [](const char* pointer, Json value) {
        Json json = small_unigram();
        json[Json::json_pointer(pointer)] = std::move(value);
        return json_error(json);
    };
    EXPECT_EQ(refusal("/model/vocab", Json::object()),
              "tokenizer.json: model.vocab: expected an array of tokens and their scores, found an object");
    EXPECT_EQ(refusal("/model/vocab/2", {"b", "0"}),
              "tokenizer.json: model.vocab: entry 3: expected [\"TOKEN\", SCORE], found an array");
    EXPECT_EQ(refusal("/model/vocab/2/0", "a"), "tokenizer.json: tokens 1 and 2 are both \"a\"");
    EXPECT_EQ(refusal("/model/unk_id", 9),
              "tokenizer.json: model.unk_id is 9, but the vocabulary has 9 tokens");
    EXPECT_EQ(
        refusal("/model/unk_id", nullptr),
        "tokenizer.json: a Unigram without unk_id is not supported: mantissa reads BPE, byte-level or with "
        "byte_fallback, and Unigram");
    EXPECT_EQ(
        refusal("/model/byte_fallback", true),
        "tokenizer.json: a decoder that does not make spaces and bytes again is not supported: mantissa "
        "reads BPE with byte_fallback and Unigram, as LLaMA 2's and T5's");
}

TEST(TokenizerFiles, TiktokenLines) {
    const std::string bytes = tiktoken_lines(small_parts());
    const auto error = [&](const std::string& added) {
        return error_of([&] { parse_tiktoken({bytes + added, "r"}); });
    };
    const std::string expected = "r: line 262: expected a token in base64, a space and its rank, found ";
    EXPECT_EQ(error("\n\n"), "no error");
    EXPECT_EQ(error("aGk="), expected + "\"aGk=\"");
    EXPECT_EQ(error("aGk 261\n"), expected + "\"aGk 261\"");    // no padding
    EXPECT_EQ(error("aG=k 261\n"), expected + "\"aG=k 261\"");  // padding inside
    EXPECT_EQ(error("aGl= 261\n"), expected + "\"aGl= 261\"");  // bits beyond the last byte
    EXPECT_EQ(error("aGk= 26x\n"), expected + "\"aGk= 26x\"");
    EXPECT_EQ(error("aGk= -1\n"), expected + "\"aGk= -1\"");
    EXPECT_EQ(error("aGk= 260\n"), "r: line 262: rank 260 is not above the one before it");
    EXPECT_EQ(error("aGk= 4000000000\n"), "r: line 262: rank 4000000000 where 261 was expected");
    EXPECT_EQ(error("aGU= 261\n"),
              "r: the tokenizer disagrees with itself: tokens 256 and 261 are the same bytes");
    // One rank may be left out, for the special token, as in p50k_base.
    EXPECT_EQ(parse_tiktoken({bytes + "aGk= 262\n", "r"}).special("<|endoftext|>"), 261);
}

/// tokenizers 0.23 (BPE.from_file) and tiktoken read lines as Rust and Python do: CR LF ends one.
TEST(TokenizerFiles, LinesMayEndInCrLfAndBeginWithAByteOrderMark) {
    const auto with_cr = [](std::string text) {
        for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 2))
            text.insert(at, "\r");
        return text;
    };
    const Ids expected = {259, 260, '!', 256, 257};
    for (const std::string mark : {"", "\xEF\xBB\xBF"})
        EXPECT_EQ(
            parse_pair(small_vocabulary().dump(), mark + with_cr(small_merges)).encode("hello hello!hell"),
            expected);
    EXPECT_EQ(parse_tiktoken({with_cr(tiktoken_lines(small_parts())), "t"}).encode("hello hello!hell"),
              expected);
}

/// The rule of LLaMA 3, which cuts digits by threes; the pair beside it would take "1234" as one piece.
Json json_of_digits() {
    Json json = small_json();
    Json& model = json["model"];
    for (const char* made : {"12", "34", "1234"}) model["vocab"][made] = model["vocab"].size();
    for (const char* merge : {"1 2", "3 4", "12 34"}) model["merges"].push_back(merge);
    json["pre_tokenizer"] = Json::parse(
        R"x({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "invert": false, "pattern":
        {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})x");
    return json;
}

void write_pair(const std::filesystem::path& folder, const Json& json, const char* vocabulary,
                const char* merges) {
    std::string lines = "#version: 0.2\n";
    for (const Json& merge : json["model"]["merges"]) lines += merge.get<std::string>() + "\n";
    write_file(folder / vocabulary, json["model"]["vocab"].dump());
    write_file(folder / merges, lines);
}

TEST(TokenizerFolder, TheFileThatSaysMostDecides) {
    const TemporaryDirectory directory;
    const Json json = json_of_digits();
    write_pair(directory.path(), json, "encoder.json", "vocab.bpe");
    EXPECT_EQ(load_tokenizer(directory.path()).encode("1234"), (Ids{264}));
    write_file(directory / "tokenizer.json", json.dump());
    // tokenizers 0.23: Tokenizer.from_file(...).encode("1234 hello").ids
    EXPECT_EQ(load_tokenizer(directory.path()).encode("1234 hello"), (Ids{262, '3', '4', 260}));
    // A file that is refused alone is refused beside the pair.
    Json other = json;
    other["normalizer"] = {{"type", "Lowercase"}};
    write_file(directory / "tokenizer.json", other.dump());
    EXPECT_EQ(error_of([&] { load_tokenizer(directory.path()); }),
              (directory / "tokenizer.json").string() +
                  ": the normalizer Lowercase is not supported: mantissa reads byte-level BPE as GPT-2's, "
                  "LLaMA 3's "
                  "and Qwen's");
}

TEST(TokenizerFolder, FilesThatSayEquallyMuchMustAgree) {
    const TemporaryDirectory directory;
    write_pair(directory.path(), json_of_digits(), "encoder.json", "vocab.bpe");
    write_pair(directory.path(), json_of_digits(), "vocab.json", "merges.txt");
    EXPECT_EQ(load_tokenizer(directory.path()).vocabulary(), 265);
    write_pair(directory.path(), small_json(), "vocab.json", "merges.txt");
    EXPECT_EQ(
        error_of([&] { load_tokenizer(directory.path()); }),
        directory.path().string() +
            ": vocab.json and merges.txt hold another tokenizer than encoder.json and vocab.bpe; remove "
            "the pair that the model was not trained with");
}

TEST(TokenizerFolder, TokensAddedBesideAPairAreNotLeftOut) {
    const TemporaryDirectory directory;
    write_pair(directory.path(), small_json(), "vocab.json", "merges.txt");
    write_file(directory / "added_tokens.json", "{}");
    EXPECT_EQ(load_tokenizer(directory.path()).vocabulary(), 262);
    write_file(directory / "added_tokens.json", R"({"<pad>": 262})");
    EXPECT_EQ(error_of([&] { load_tokenizer(directory.path()); }),
              (directory / "added_tokens.json").string() +
                  ": tokens beside those of vocab.json are not read from here; save the tokenizer as "
                  "tokenizer.json, which holds both");
}

/// A special token without angle brackets, which the pair could not have told from a damaged list of merges.
Json json_with_pad() {
    Json json = small_json();
    json["model"]["vocab"]["[PAD]"] = 262;
    for (const auto& [content, id] : {std::pair{"[PAD]", 262}, {"EOS", 263}}) {
        Json token = json["added_tokens"][0];
        token["content"] = content;
        token["id"] = id;
        json["added_tokens"].push_back(token);
    }
    return json;
}

TEST(TokenizerFolder, WhatWasReadIsKeptAsItWasReadThoughItsFileHasGone) {
    const TemporaryDirectory directory;
    write_file(directory / "tokenizer.json", json_with_pad().dump());
    write_file(directory / "tokenizer_config.json", "{\"model_max_length\": 8}");
    const Tokenizer read = load_tokenizer(directory.path());
    std::filesystem::remove(directory / "tokenizer.json");
    const std::map<std::string, std::string> kept = {{"tokenizer.json", json_with_pad().dump()},
                                                     {"tokenizer_config.json", "{\"model_max_length\": 8}"}};
    EXPECT_EQ(tokenizer_texts(read), kept);
    write_tokenizer(read, directory / "copy");
    const Tokenizer again = load_tokenizer(directory / "copy");
    EXPECT_TRUE(same_tokens(again.parts(), read.parts()));
    EXPECT_EQ(again.special("[PAD]"), 262);
    EXPECT_EQ(again.special("EOS"), 263);
    EXPECT_TRUE(is_kept_in(directory / "copy", read));
    EXPECT_FALSE(is_kept_in(directory / "copy", Tokenizer(small_parts())));
}

TEST(TokenizerFolder, NothingIsWrittenThatIsNotReadBack) {
    TokenizerParts parts = small_parts();
    parts.specials.push_back({"[PAD]", static_cast<TokenId>(parts.tokens.size())});
    parts.tokens.emplace_back("[PAD]");
    const TemporaryDirectory directory;
    EXPECT_EQ(error_of([&] { write_tokenizer(Tokenizer(parts), directory / "out"); }),
              "small, as vocab.json: the tokenizer disagrees with itself: token 262 (\"[PAD]\") is in the "
              "vocabulary but no merge makes it");
    EXPECT_FALSE(std::filesystem::exists(directory / "out"));
    parts = small_parts();
    parts.pipeline.cuts.clear();
    EXPECT_EQ(error_of([&] { tokenizer_texts(Tokenizer(parts)); }),
              "small: vocab.json and merges.txt cannot hold this tokenizer");
}

TEST(TokenizerFolder, AModelsFilesSayWhatEndsAText) {
    const TemporaryDirectory directory;
    write_file(directory / "tokenizer.json", json_with_pad().dump());
    const auto ends = [&] {
        const Tokenizer tokenizer = load_tokenizer(directory.path());
        return Ids(tokenizer.ends().begin(), tokenizer.ends().end());
    };
    EXPECT_EQ(ends(), (Ids{261}));  // by its spelling
    write_file(directory / "config.json", R"({"eos_token_id": 263, "bos_token_id": 262})");
    EXPECT_EQ(ends(), (Ids{263}));
    EXPECT_EQ(token_ids_of(load_tokenizer(directory / "tokenizer.json")).begin, 262);
    write_file(directory / "generation_config.json", R"({"eos_token_id": [262, 263]})");
    EXPECT_EQ(ends(), (Ids{262, 263}));
    const Tokenizer tokenizer = load_tokenizer(directory.path());
    EXPECT_EQ(
        tokenizer.encode("hEOS<|endoftext|>[PAD]", {.specials = SpecialsInText::end_of_text_as_token}).size(),
        1u + 1u + 13u + 1u);
    // A configuration that nobody adapted: its numbers stand for no tokens of this one.
    write_file(directory / "generation_config.json", R"({"eos_token_id": 50256})");
    EXPECT_EQ(ends(), (Ids{261}));
    write_file(directory / "generation_config.json", R"({"eos_token_id": "EOS"})");
    EXPECT_EQ(error_of([&] { ends(); }), (directory / "generation_config.json").string() +
                                             ": eos_token_id: expected an unsigned integer, found \"EOS\"");
}

TEST(TokenizerFiles, TiktokenVocabulariesOfAnotherSplitRule) {
    std::string lines;
    for (int rank = 0; rank < 128000; ++rank) {
        const std::string bytes = {static_cast<char>(rank), static_cast<char>(rank >> 8),
                                   static_cast<char>(rank >> 16)};
        lines += base64(bytes) + " " + std::to_string(rank) + "\n";
    }
    EXPECT_EQ(error_of([&] {
                  parse_tiktoken({lines, "r"});
              }),
              "r: 128000 tokens are those of Llama 3, which splits text by another rule than GPT-2's; this "
              "format says no rule: use its tokenizer.json");
}

}  // namespace mantissa

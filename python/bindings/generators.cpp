// Text from trained language models: a prompt is continued, a chat is answered.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

/// Messages as JSON: a text as it is, anything else as Python's json writes it.
std::string json_of(const nb::object& messages) {
    if (nb::isinstance<nb::str>(messages)) return nb::cast<std::string>(messages);
    return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(messages));
}

TextOptions text_options(std::int64_t length, double temperature, std::int64_t top_k, double top_p,
                         double min_p, double repetition_penalty, std::uint64_t seed,
                         std::vector<std::string> stop) {
    return {.sampling = {.temperature = temperature,
                         .top_k = top_k,
                         .top_p = top_p,
                         .min_p = min_p,
                         .repetition_penalty = repetition_penalty,
                         .seed = seed},
            .length = length,
            .stop = std::move(stop)};
}

/// A method of Generator that makes a text of one argument.
template <class Method>
void add_method(nb::class_<Generator>& generator, const char* name, const char* argument,
                const Method& method, const char* text) {
    const TextOptions usual;
    generator.def(
        name,
        [method](Generator& self, const nb::object& given, std::int64_t length, double temperature,
                 std::int64_t top_k, double top_p, double min_p, double repetition_penalty,
                 std::uint64_t seed, std::vector<std::string> stop) {
            return method(self, given,
                          text_options(length, temperature, top_k, top_p, min_p, repetition_penalty, seed,
                                       std::move(stop)));
        },
        nb::arg(argument), nb::kw_only(), nb::arg("length") = usual.length,
        nb::arg("temperature") = usual.sampling.temperature, nb::arg("top_k") = usual.sampling.top_k,
        nb::arg("top_p") = usual.sampling.top_p, nb::arg("min_p") = usual.sampling.min_p,
        nb::arg("repetition_penalty") = usual.sampling.repetition_penalty,
        nb::arg("seed") = usual.sampling.seed, nb::arg("stop") = usual.stop, text);
}

}  // namespace

void bind_generators(nb::module_& module) {
    nb::class_<Generator> generator(module, "Generator",
                                    "A trained language model that writes text: a checkpoint, or "
                                    "model.safetensors and config.json as published");
    generator.def(
        "__init__",
        [](Generator* self, const nb::object& folder, const std::string& policy, const std::string& device,
           int threads, const std::string& adapter, const std::string& tokenizer) {
            GeneratorOptions options{.policy = {}, .adapter = adapter, .tokenizer = tokenizer};
            options.policy = policy;
            new (self)
                Generator(device_named(device, threads),
                          nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(folder)), options);
        },
        nb::arg("folder"), nb::kw_only(), nb::arg("policy") = "fp32", nb::arg("device") = "cpu",
        nb::arg("threads") = 0, nb::arg("adapter") = "", nb::arg("tokenizer") = "",
        "policy: int8 and int4, too. adapter: a folder of adapters to add. tokenizer: a directory, a file, "
        "or "
        "\"bytes\"; without it what lies beside the weights");
    add_method(
        generator, "text", "prompt",
        [](Generator& self, const nb::object& prompt, const TextOptions& options) {
            const std::string text = nb::cast<std::string>(prompt);
            const nb::gil_scoped_release released;
            return self.text(text, options);
        },
        "The continuation of a prompt, of at most `length` tokens");
    add_method(
        generator, "answer", "messages",
        [](Generator& self, const nb::object& messages, const TextOptions& options) {
            const std::string chat = json_of(messages);
            const nb::gil_scoped_release released;
            return self.answer(chat, options);
        },
        "The answer to a chat, through the model's chat template. messages: a list of dicts with role and "
        "content, the last one the user's; or the same as JSON");
}

}  // namespace mantissa::python

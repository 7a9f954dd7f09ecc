#include <elf.h>
#include <link.h>

#include <cstring>
#include <string>
#include <string_view>

#include "mantissa/base/version.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

namespace {

struct Search {
    const void* inside = nullptr;  ///< an address in the object looked for
    std::string found = {};
};

bool holds(const dl_phdr_info& object, const void* address) {
    const auto at = reinterpret_cast<ElfW(Addr)>(address);
    for (int i = 0; i < object.dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = object.dlpi_phdr[i];
        const ElfW(Addr) begin = object.dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && at >= begin && at < begin + part.p_memsz) return true;
    }
    return false;
}

std::string digits_of(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) {
        text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
        text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}

/// The note of GNU's build ID among notes, each a header, a name and its content, both filled up to whole
/// words.
std::string build_id_in(std::string_view notes) {
    const auto filled = [](std::size_t bytes) { return static_cast<std::size_t>(align_up(bytes, 4)); };
    while (notes.size() >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        std::memcpy(&note, notes.data(), sizeof note);
        notes.remove_prefix(sizeof note);
        const std::size_t name = filled(note.n_namesz), content = filled(note.n_descsz);
        if (notes.size() < name + note.n_descsz) return "";
        if (note.n_type == NT_GNU_BUILD_ID && notes.substr(0, note.n_namesz) == std::string_view("GNU", 4))
            return digits_of(notes.substr(name, note.n_descsz));
        if (notes.size() < name + content) return "";
        notes.remove_prefix(name + content);
    }
    return "";
}

int look_at(dl_phdr_info* object, std::size_t, void* search_given) {
    Search& search = *static_cast<Search*>(search_given);
    if (!holds(*object, search.inside)) return 0;
    for (int i = 0; i < object->dlpi_phnum && search.found.empty(); ++i) {
        const ElfW(Phdr)& part = object->dlpi_phdr[i];
        if (part.p_type == PT_NOTE)
            search.found = build_id_in({reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr),
                                        static_cast<std::size_t>(part.p_memsz)});
    }
    return 1;
}

}  // namespace

std::string build_id() {
    static const char here = 0;
    Search search{.inside = &here};
    dl_iterate_phdr(look_at, &search);
    return search.found;
}

}  // namespace mantissa

"""Templates of our own that use each construct that mantissa/data/chat takes, for chat_templates_fixture.json."""
TEMPLATES = {
    "marks": """{%- for m in messages -%}
<|{{ m['role'] }}|>
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>{% endgeneration %}

{% else %}
{{ m.content }}<|end|>
{% endif %}
{%- endfor -%}
{% if add_generation_prompt %}<|assistant|>
{% endif %}
""",
    "white space": """  {% set a = 1 %}
    {%+ if a %}x{% endif +%}
  {# a comment #}
 b {#- tight -#}  c
{% raw %}{{ raw }} {% endraw %}
{%- raw -%}  {% if %} {%- endraw +%}
  {{- ' y ' -}}  z {{ 'tab\\tnewline\\nquote\\'\\x41\\u00e9\\101' "joined" }}\r
last
""",
    "macros": """{% macro f(a, b=2, c='x') %}[{{ a }},{{ b }},{{ c }},{{ varargs }},{{ kwargs|length }}]{% endmacro %}
{{ f(1) }}{{ f(1, c=3) }}{{ f(1, 2, 3, 4, 5, d=6) }}
{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}inner{% endcall %}
{% macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(5) }}
{% macro late() %}{{ later }}{% endmacro %}{% set later = 'now' %}{{ late() }}{% set later = 'then' %}{{ late() }}
""",
    "namespaces": """{% set ns = namespace(n=0, all=[], text='') %}
{% for m in messages %}{% set ns.n = ns.n + loop.index %}{% set ns.all = ns.all + [m.role] %}
{% set ns.text = ns.text ~ m.role|upper ~ loop.first ~ loop.last %}{% set local = m.role %}{% endfor %}
{{ ns.n }} {{ ns.all }} {{ ns.text }} {{ local is defined }} {{ ns.missing is defined }}
""",
    "loops": """{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}/{{ loop.revindex0 }}
{%- if loop.previtem is defined and loop.previtem.role == m.role %} again{% endif %}
{%- if loop.nextitem is defined %} then {{ loop.nextitem.role }}{% endif %}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}
{%- if loop.index == 4 %}{% break %}{% endif %}{% if loop.index is odd %}{% continue %}{% endif %};{% else %}none{% endfor %}
{% for k, v in {'x': 1, 'y': [1, 2]}.items() %}{{ k }}={{ v }},{% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a + b + c }}{% endfor %}
{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}{% for x in missing %}x{% else %}empty{% endfor %}
""",
    "slices": """{{ messages[::-1]|map(attribute='role')|join(',') }} {{ messages[1:]|length }} {{ 'abcdef'[1:-1:2] }} {{ 'abc'[-1] }}
{{ 'abc'[::-1] }} {{ [1, 2, 3][-2:] }} {{ (1, 2)[0] }} {{ [1][5] is defined }} {{ messages[0]['role'][0] if messages }} {{ 'a.b'.split('.')[-1] }}
""",
    "numbers": """{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 10 * 'ab' }}
{{ '12'|int + 1 }} {{ '1.5'|float }} {{ 'x'|int(7) }} {{ -3|abs }} {{ 2.5|round }} {{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ true + 1 }} {{ 5 - -2 }}
""",
    "filters": """{{ '  a '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ none|default('d') }}|{{ ''|default('d', true) }}|{{ nothing|default('e') }}
{{ [3, 1, 2]|sort|join('-') }} {{ ['b', 'A', 'b']|unique|list }} {{ {'b': 1, 'A': 2}|dictsort }} {{ [1, 2, 3]|sum }} {{ [1, 5]|max }}{{ [4, 2]|min }}
{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|rejectattr('content')|map(attribute='role')|list }}
{{ [1, 2, 3, 4]|select('even')|list }} {{ [1, none, 2]|reject('none')|list }} {{ ['a', 'b']|map('upper')|join }} {{ 'a-b c'|title }}
{{ 'hELLO straße ΑΣ ΑΣα ǆ'|capitalize }} {{ 'straße ﬁ ŉ'|upper }} {{ 'ΑΣ İ'|lower }} {{ 'abab'|replace('a', 'x', 1) }} {{ 'a\\nb\\n\\nc'|indent(2) }}
{{ [1, 2]|first }}{{ [1, 2]|last }} {{ 'abc'|reverse }} {{ {'a': 1}|items|list }} {{ 5|string + '5' }} {{ '<b>'|escape }} {{ 'abc'|length }}
{% filter upper|trim %} x{{ 1 }} {% endfilter %}{% set t | upper %}block {{ 1 + 1 }}{% endset %}{{ t }}
""",
    "markup": """{{ '<a>'|safe + '<b>' }} {{ '<a>' + '<b>'|safe }} {{ '<a>'|safe ~ '<b>' }} {{ {'a': '<'}|tojson|safe }} {{ ('<'|safe).replace('<', '>') }}
""",
    "json": """{% for m in messages %}{{ m|tojson }}{% endfor %}
{{ messages|tojson(indent=2) }}{{ {'b': 1, 'a': [1.0, none, true]}|tojson(sort_keys=true, separators=(',', ':')) }}{{ 'é🙂'|tojson(ensure_ascii=true) }}
{{ messages }} {{ tools }} {{ {'q': "it's", 'r': "a\\"b'", 1: (1,), 2: ()} }} {{ '\\x1b\\u200b\\xa0' | list }}
""",
    "tests": """{% for x in [none, true, 1, 1.5, 'a', [1], (1,), {'a': 1}, nothing, messages.items] %}
{{ x is none }}{{ x is boolean }}{{ x is true }}{{ x is false }}{{ x is integer }}{{ x is float }}{{ x is number }}{{ x is string }}{{ x is mapping }}
{{- x is sequence }}{{ x is iterable }}{{ x is defined }}{{ x is undefined }}{{ x is not callable }}{% endfor %}
{{ 4 is divisibleby 2 }}{{ 3 is gt 2 }}{{ 'a' is in 'abc' }}{{ 'B' is upper }}{{ not 'x' in ['x'] }}{{ 'y' not in {'x': 1} }}{{ none is sameas none }}
""",
    "methods": """{% for m in messages %}{% set c = m.content if m.content is string else '' %}{{ c.strip() }}|{{ c.split('</think>')[-1].lstrip('\\n') }}|
{{- c.startswith('<') }}{{ c.endswith(('>', 'x')) }}{{ c.find('e') }}{{ c.rfind('e') }}{{ c.count('l') }}{{ c.splitlines() }}{{ c.title() }}{{ c.upper().lower() }}
{%- if '<think>' in c %}!{% endif %}{{ m.get('content') == m['content'] }}{{ m.get('x', 'y') }}{{ m.keys()|list }}{% endfor %}
{{ 'a b  c'.split() }}{{ 'a,b,c'.split(',', 1) }}{{ ','.join(['x', 'y']) }}{{ 'prefix'.removeprefix('pre') }}{{ '12'.isdigit() }}{{ [1, 2, 1].count(1) }}{{ ['a'].index('a') }}
""",
    "dates and refusals": """{{ strftime_now('%d %b %Y') }}{% if messages and messages[0].role == 'system' %}{{ raise_exception('no system: ' + messages[0].role) }}{% endif %}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}{{ bos_token }}{{ 'x' if false }}{{ 1 if false else 2 if true else 3 }}{{ missing.attribute if tools }}
""",
}

"""The classes of the household world: what there is, what may lie where, and what can be done to it.

Class names are ALFWorld's, in lower case; the tables are those its games are made with.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "ACCEPTS",
    "CLEANABLE",
    "CONTAINERS",
    "COOLABLE",
    "HEATABLE",
    "KNIVES",
    "LAMPS",
    "OBJECTS",
    "OPENABLE",
    "RECEPTACLES",
    "SLICEABLE",
    "TOGGLEABLE",
    "order_of",
]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SURFACE = _set(
    "alarmclock apple applesliced baseballbat basketball book bowl box bread breadsliced butterknife candle cd "
    "cellphone cloth creditcard cup dishsponge egg fork glassbottle handtowel kettle keychain knife ladle laptop "
    "lettuce lettucesliced mug newspaper pan papertowel pen pencil peppershaker plate pot potato potatosliced "
    "remotecontrol saltshaker soapbar soapbottle spatula spoon spraybottle statue tennisracket tissuebox toiletpaper "
    "toiletpaperroll tomato tomatosliced vase watch wateringcan winebottle"
)
_SEAT = _set("basketball book box cellphone cloth creditcard keychain laptop newspaper pillow remotecontrol")

ACCEPTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "armchair": _SEAT,
        "bathtubbasin": _set("cloth dishsponge handtowel soapbar"),
        "bed": _set("baseballbat basketball book cellphone laptop newspaper pillow tennisracket"),
        "cabinet": _set(
            "book bowl box candle cd cloth cup dishsponge glassbottle handtowel kettle ladle mug newspaper pan "
            "peppershaker plate plunger pot saltshaker soapbar soapbottle spraybottle tissuebox toiletpaper "
            "toiletpaperroll vase wateringcan winebottle"
        ),
        "cart": _set(
            "candle cloth dishsponge handtowel mug papertowel plunger soapbar soapbottle spraybottle statue tissuebox "
            "toiletpaper toiletpaperroll vase"
        ),
        "coffeemachine": _set("mug"),
        "coffeetable": _SURFACE,
        "countertop": _SURFACE,
        "desk": _set(
            "alarmclock basketball book bowl box candle cd cellphone cloth creditcard cup glassbottle keychain laptop "
            "mug newspaper pen pencil plate remotecontrol soapbottle spraybottle statue tennisracket tissuebox "
            "toiletpaper toiletpaperroll vase watch wateringcan winebottle"
        ),
        "diningtable": _SURFACE,
        "drawer": _set(
            "book butterknife candle cd cellphone cloth creditcard dishsponge fork handtowel keychain knife ladle "
            "newspaper pen pencil peppershaker remotecontrol saltshaker soapbar soapbottle spatula spoon spraybottle "
            "tissuebox toiletpaper toiletpaperroll watch wateringcan"
        ),
        "dresser": _set(
            "alarmclock basketball book bowl box candle cd cellphone cloth creditcard cup glassbottle keychain laptop "
            "mug newspaper pen pencil plate remotecontrol spraybottle statue tennisracket tissuebox toiletpaper "
            "toiletpaperroll vase watch wateringcan winebottle"
        ),
        "fridge": _set(
            "apple applesliced bowl bread breadsliced cup egg glassbottle lettuce lettucesliced mug pan plate pot "
            "potato potatosliced tomato tomatosliced winebottle"
        ),
        "garbagecan": _set(
            "apple applesliced bread breadsliced cd cloth dishsponge egg handtowel lettuce lettucesliced newspaper "
            "papertowel pen pencil potato potatosliced soapbar soapbottle spraybottle tissuebox toiletpaper "
            "toiletpaperroll tomato tomatosliced winebottle"
        ),
        "handtowelholder": _set("handtowel"),
        "laundryhamper": _set("cloth"),
        "microwave": _set(
            "apple applesliced bowl bread breadsliced cup egg glassbottle mug plate potato potatosliced tomato "
            "tomatosliced"
        ),
        "ottoman": _SEAT,
        "safe": _set("cd cellphone creditcard keychain statue vase watch"),
        "shelf": _set(
            "alarmclock book bowl box candle cd cellphone cloth creditcard cup dishsponge glassbottle handtowel "
            "kettle keychain mug newspaper papertowel pen pencil peppershaker plate pot remotecontrol saltshaker "
            "soapbar soapbottle spraybottle statue tissuebox toiletpaper toiletpaperroll vase watch wateringcan "
            "winebottle"
        ),
        "sidetable": _SURFACE,
        "sinkbasin": _set(
            "apple applesliced bowl butterknife cloth cup dishsponge egg fork glassbottle handtowel kettle knife "
            "ladle lettuce lettucesliced mug pan plate pot potato potatosliced soapbar spatula spoon tomato "
            "tomatosliced"
        ),
        "sofa": _SEAT,
        "stoveburner": _set("kettle pan pot"),
        "toaster": _set("breadsliced"),
        "toilet": _set(
            "candle cloth dishsponge handtowel newspaper papertowel soapbar soapbottle spraybottle tissuebox "
            "toiletpaper toiletpaperroll"
        ),
        "toiletpaperhanger": _set("toiletpaper toiletpaperroll"),
        "towelholder": _set("towel"),
        "tvstand": _set("tissuebox"),
    }
)
"""Receptacle class to the object classes that may be moved to it."""

HEATABLE = _set("apple applesliced bread breadsliced cup egg mug plate potato potatosliced tomato tomatosliced")
"""What a microwave heats."""
COOLABLE = _set(
    "apple applesliced bowl bread breadsliced cup egg lettuce lettucesliced mug pan plate pot potato potatosliced "
    "tomato tomatosliced winebottle"
)
"""What a fridge cools."""
CLEANABLE = _set(
    "apple applesliced bowl butterknife cloth cup dishsponge egg fork kettle knife ladle lettuce lettucesliced mug "
    "pan plate pot potato potatosliced soapbar spatula spoon tomato tomatosliced"
)
"""What a sink basin cleans."""
TOGGLEABLE = _set("desklamp floorlamp")
"""What has a switch."""
SLICEABLE = _set("apple bread egg lettuce potato tomato")
"""What a knife slices."""
CONTAINERS = _set("bowl box cup mug pan plate pot")
"""Objects that could hold others; examining one shows neither temperature nor cleanliness."""
OPENABLE = _set("fridge cabinet microwave drawer safe")
"""Receptacles that have a door."""
KNIVES = _set("knife butterknife")
"""What slices."""
LAMPS = TOGGLEABLE
"""Objects that stay where they are."""

RECEPTACLES = tuple(sorted(ACCEPTS))
"""All receptacle classes."""
OBJECTS = tuple(sorted(frozenset[str]().union(*ACCEPTS.values()) | LAMPS))
"""All object classes."""


def order_of(name: str) -> tuple[str, int]:
    """Return the place of ``class number`` among all names: that of the real engine's hidden ids.

    Classes are in alphabetical order, basins under the names of what they belong to; numbers descend within a class.
    """
    kind, _, number = name.rpartition(" ")
    return f"{kind.removesuffix('basin')}_", -int(number)
